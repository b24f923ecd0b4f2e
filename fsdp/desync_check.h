// Whether all ranks of a group are about to make the same collective: asked
// before each one of the engine, so that ranks that went different ways end
// with an error that names rank, group and operation, instead of a hang, of
// wrong numbers, or of an abort inside the backend. Called by the thread that
// makes the collective.
//
// The order check is on by default and light: a rank sends its next neighbour
// in the group 256 bytes and reads those of the one before it, over Gloo. The
// ranks on both sides of a divergence are told; others notice when those end.
// A group without Gloo, such as one of NCCL alone, is not checked.
//
// Debug mode compares all ranks with one another, and says of each where it
// is. It asks the job's store, a few round trips for each collective.
#ifndef FSDP_DESYNC_CHECK_H_
#define FSDP_DESYNC_CHECK_H_

#include <string>

#include "fsdp/process_group.h"

namespace fsdp {

// Of the order check's messages between two ranks, in whatever backend the
// group has for the CPU. A user's own messages need another tag.
inline constexpr int kOrderCheckTag = 0x46534450;

// What follows in the text of a reduction in which parameters take no part that
// could: ranks that sum gradients of different parameters would get sums of
// neither.
inline constexpr char kWithoutGradients[] = " without gradients of ";

// On every rank, before training; also on with TESSERA_FSDP_DEBUG=1 in the
// environment.
void set_debug_mode(bool enabled);
bool debug_mode();

// On every rank, before training; also off with TESSERA_FSDP_ORDER_CHECK=0 in
// the environment.
void set_order_check(bool enabled);
bool order_check();

// Compares this rank's next collective over `ranks` with that of other ranks:
// `collective`, such as "all-gather of 'layers.3'", and how many the group had
// before. `reason` is for the error: "aten::linear". Throws c10::Error when
// they differ, and c10::DistBackendError when a rank does not come within the
// timeout of its group, or has died. Nothing for a group of one.
void CheckInStep(const ProcessGroup& ranks, const std::string& collective,
                 const std::string& reason);

}  // namespace fsdp

#endif  // FSDP_DESYNC_CHECK_H_
