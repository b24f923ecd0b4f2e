// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks of a group are about to make the same collective. The
// engine calls it before each of its collectives, so that ranks that diverge
// end with an error that names rank, group and operation, instead of a hang,
// wrong numbers, or an abort inside the backend. Called by the thread that
// makes the collective.
//
// The order check is on by default and light: a rank sends its next neighbour
// in the group 256 bytes and reads those of the one before it, over Gloo. The
// ranks on both sides of a divergence get the error; others notice when those
// end. A group without Gloo, such as one with only NCCL, is not checked.
//
// On the CPU a rank reads before it makes its collective. On a device with
// streams, where the host runs ahead of the device, it does not wait for its
// neighbour: it reads what has come when it makes the next collective of the
// group, is at most kMaxUnread messages ahead, and reads all of them at the end
// of a backward, before the optimizer may use the gradients.
//
// Debug mode compares all ranks with one another, and reports where each one
// is. It uses the job's store, with a few round trips for each collective.
#ifndef FSDP_MESH_COLLECTIVE_ORDER_H_
#define FSDP_MESH_COLLECTIVE_ORDER_H_

#include <cstddef>
#include <string>

#include "c10/core/DeviceType.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// The tag of the order check's messages between two ranks, in the group's
// backend for the CPU. A user's own messages must have another tag.
inline constexpr int kOrderCheckTag = 0x46534450;

// The most messages of a neighbour that a rank has not read yet. Each takes
// 512 bytes.
// A step of a large model makes some hundred collectives.
inline constexpr size_t kMaxUnread = 256;

// In the text of a reduction, this precedes the names of trained parameters
// without a gradient: ranks that sum gradients of different parameters would
// get wrong sums.
inline constexpr char kWithoutGradients[] = " without gradients of ";

// Call it on every rank, before training; TESSERA_FSDP_DEBUG=1 in the
// environment also turns it on.
void set_debug_mode(bool enabled);
bool debug_mode();

// Call it on every rank, before training; TESSERA_FSDP_ORDER_CHECK=0 in the
// environment also turns it off.
void set_order_check(bool enabled);
bool order_check();

// Compares this rank's next collective over `ranks`, of tensors on `device`,
// with that of other ranks: `collective`, such as "all-gather of 'layers.3'",
// and the number of collectives that the group has made. `reason` is for the
// error: "aten::linear". Throws c10::Error when they differ, or when earlier
// ones are now seen to have differed, and c10::DistBackendError when a rank
// does not come within the timeout of its group, or has died. Does nothing for
// a group of one.
void CheckInStep(const ProcessGroup& ranks, c10::DeviceType device,
                 const std::string& collective, const std::string& reason);

// Reads what the neighbours in all groups have yet to say about collectives
// that this rank made already; throws as CheckInStep does. For the end of a
// backward, on the thread that runs it.
void FinishOrderCheck();

}  // namespace fsdp

#endif  // FSDP_MESH_COLLECTIVE_ORDER_H_
