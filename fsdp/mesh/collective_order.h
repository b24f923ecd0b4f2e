// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks in a group are about to make the same collective. The
// engine calls it before each collective. If ranks diverge, they end with an
// error that names rank, group and operation, instead of a hang, wrong numbers,
// or an abort inside the backend. Called by the thread that makes the
// collective.
//
// The order check is on by default and light: a rank sends 256 bytes to the
// next rank in the group and reads 256 from the previous one, over Gloo. The
// ranks on both sides of a divergence get the error; others notice when those
// end. A group without Gloo, such as one with only NCCL, is not checked.
//
// On the CPU a rank reads its neighbour's message before it makes the
// collective. On a device with streams, where the host runs ahead of the
// device, it does not wait: it reads the messages that have arrived when it
// makes the group's next collective. It is at most kMaxUnread messages ahead,
// and reads all of them at the end of a backward, before the optimizer may use
// the gradients.
//
// Debug mode compares all ranks with one another, and reports each rank's
// place. It uses the job's store, with a few round trips for each collective.
#ifndef FSDP_MESH_COLLECTIVE_ORDER_H_
#define FSDP_MESH_COLLECTIVE_ORDER_H_

#include <cstddef>
#include <string>

#include "c10/core/DeviceType.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {

// The tag of the order check's messages between two ranks, in the group's CPU
// backend. A user's own messages must have another tag.
inline constexpr int kOrderCheckTag = 0x46534450;

// The most messages from a neighbour that may be unread. Each takes 512 bytes.
// A large model's step makes some hundred collectives.
inline constexpr size_t kMaxUnread = 256;

// In a reduction's text, this precedes the names of trained parameters without
// a gradient: ranks that sum gradients of different parameters would get wrong
// sums.
inline constexpr char kWithoutGradients[] = " without gradients of ";

// Call it on every rank, before training; TESSERA_FSDP_DEBUG=1 in the
// environment also turns it on.
void set_debug_mode(bool enabled);
bool debug_mode();

// Call it on every rank, before training; TESSERA_FSDP_ORDER_CHECK=0 in the
// environment also turns it off.
void set_order_check(bool enabled);
bool order_check();

// Compares this rank's next collective over `ranks`, for tensors on `device`,
// with that of other ranks: `collective`, such as "all-gather of 'layers.3'",
// and how many collectives the group has made. `reason` is for the error:
// "aten::linear". Throws c10::Error when they differ, or when earlier ones are
// found only now to have differed. Throws c10::DistBackendError when a rank has
// died or does not come within the group's timeout. Does nothing for a group of
// one.
void CheckInStep(const ProcessGroup& ranks, c10::DeviceType device,
                 const std::string& collective, const std::string& reason);

// Reads the remaining messages in all groups about collectives that this rank
// has already made. Throws as CheckInStep does. For the end of a backward, on
// the thread that runs it.
void FinishOrderCheck();

}  // namespace fsdp

#endif  // FSDP_MESH_COLLECTIVE_ORDER_H_
