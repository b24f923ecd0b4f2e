// SPDX-License-Identifier: Apache-2.0
// Checkpoints without LibTorch: a program includes only this header to list,
// load, save, convert, verify and compare them. Each header below says how to
// call it and on which thread. docs/compatibility.md says which parts stay from
// release to release.
#ifndef TESSERA_DCP_H_
#define TESSERA_DCP_H_

// IWYU pragma: begin_exports
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"
#include "dcp/base/version.h"
#include "dcp/checkpoint/assembly/tensor_assembly.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/convert/map_plan.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/mapped/map_request.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "dcp/checkpoint/save/state_file.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_systems/default_file_system.h"
// IWYU pragma: end_exports

#endif  // TESSERA_DCP_H_
