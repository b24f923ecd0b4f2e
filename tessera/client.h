// SPDX-License-Identifier: Apache-2.0
// The client of dcp-server: a program includes only this header to start jobs
// there and to read checkpoints from it. client/README.md shows how.
// docs/compatibility.md says which parts stay from release to release.
#ifndef TESSERA_CLIENT_H_
#define TESSERA_CLIENT_H_

// IWYU pragma: begin_exports
#include "client/channel.h"
#include "client/checkpoint_client.h"
#include "client/checkpoint_url.h"
#include "client/job_client.h"
#include "dcp/base/status.h"
// IWYU pragma: end_exports

#endif  // TESSERA_CLIENT_H_
