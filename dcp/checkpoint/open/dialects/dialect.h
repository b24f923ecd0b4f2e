// Dialect: how a training program lays a checkpoint out in files of a format
// that others use too. Pure; any thread.
#ifndef DCP_CHECKPOINT_OPEN_DIALECTS_DIALECT_H_
#define DCP_CHECKPOINT_OPEN_DIALECTS_DIALECT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dcp {

enum class Dialect : uint8_t {
  kNone,       // the format's own layout
  kRanks,      // a torch.save file for each rank: verl, accelerate, FSDP1
  kDeepSpeed,  // ZeRO and universal checkpoints
};

// "ranks", "deepspeed"; empty for kNone.
absl::string_view DialectName(Dialect dialect);
absl::StatusOr<Dialect> ParseDialect(absl::string_view name);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_DIALECTS_DIALECT_H_
