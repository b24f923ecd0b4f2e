// StatePart: which part of a training state an entry belongs to, whatever its
// checkpoint calls it. Pure; any thread.
#ifndef DCP_CHECKPOINT_OPEN_STATE_PART_H_
#define DCP_CHECKPOINT_OPEN_STATE_PART_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint_entry.h"

namespace dcp {

enum class StatePart : uint8_t { kModel, kOptimizer, kExtra };

// "model", "optimizer" or "extra".
absl::string_view StatePartName(StatePart part);
absl::StatusOr<StatePart> ParseStatePart(absl::string_view name);

// How a checkpoint divides its state.
class StateParts {
 public:
  // Looks at all entries of the checkpoint.
  explicit StateParts(absl::Span<const CheckpointEntry> entries);

  struct Place {
    StatePart part = StatePart::kModel;
    // How many elements of the path only name the part: 1 of model.w, 2 of
    // Composer's state.model.w, none if the model is at the top level, as
    // TorchTitan and Megatron have it.
    size_t num_roots = 0;
  };
  Place PlaceOf(const CheckpointEntry& entry) const;

 private:
  enum class Layout : uint8_t {
    kRoots,     // model, optimizer and others
    kComposer,  // the same below state
    kTopLevel,  // everything but an optimizer and a few others is the model
  };
  Layout layout_ = Layout::kTopLevel;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_STATE_PART_H_
