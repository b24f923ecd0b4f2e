// SPDX-License-Identifier: Apache-2.0
// Gloo: collectives on the CPU over TCP, always linked in. For the thread that
// trains.
#ifndef FSDP_MESH_GLOO_BACKEND_H_
#define FSDP_MESH_GLOO_BACKEND_H_

#include "fsdp/mesh/backend_registry.h"
#include "fsdp/mesh/launch.h"

namespace fsdp {

// Chooses the network interfaces for groups that are made later: those that
// GLOO_SOCKET_IFNAME lists, loopback when all ranks are on this machine, else
// the interface to which the machine's own name resolves. Throws c10::Error
// when there is no such interface.
void OpenGlooDevices(const Launch& launch);
// Releases them; existing groups keep theirs.
void CloseGlooDevices();

BackendKind GlooBackend();

}  // namespace fsdp

#endif  // FSDP_MESH_GLOO_BACKEND_H_
