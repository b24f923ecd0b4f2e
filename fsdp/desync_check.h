// Debug mode: before every collective of the engine, ranks tell one another
// what they are about to do, and a difference becomes an error on every rank
// that names the rank, the group and the operation, instead of a hang or of
// wrong numbers. Costs a few round trips to the store for each collective, so
// it is off by default.
#ifndef FSDP_DESYNC_CHECK_H_
#define FSDP_DESYNC_CHECK_H_

#include <string>

namespace fsdp {

class FsdpParamGroup;

// On every rank, before training; also on with TESSERA_FSDP_DEBUG=1 in the
// environment.
void set_debug_mode(bool enabled);
bool debug_mode();

// Compares this rank's next collective with that of the other ranks of the
// group: its kind, the group, and how many the group had before. Throws
// c10::Error when they differ, or when a rank does not come within the
// timeout of the default group. Nothing unless debug mode is on.
void CheckInStep(const FsdpParamGroup& group, const char* collective,
                 const std::string& op);

}  // namespace fsdp

#endif  // FSDP_DESYNC_CHECK_H_
