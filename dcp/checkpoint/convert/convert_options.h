// SPDX-License-Identifier: Apache-2.0
// ConvertOptions: the result that a conversion makes (ConvertSpec), and how it
// works (ConvertRun). Plain data.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERT_OPTIONS_H_
#define DCP_CHECKPOINT_CONVERT_CONVERT_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/write/byte_stream.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/parallel_plan.h"
#include "dcp/tensor/placement.h"

namespace dcp {

struct ConvertJournal;  // dcp/checkpoint/convert/convert_journal.h
struct ConvertPlan;     // dcp/checkpoint/convert/convert_plan.h

struct PlacementRule {
  std::string glob;
  Placements placements;  // one for each axis of the mesh
  std::string mesh = {};  // one of other_meshes; empty: ConvertSpec::mesh
};

// Another arrangement of the same ranks, such as one for experts.
struct NamedMesh {
  std::string name;  // a word
  Mesh mesh;         // with as many ranks as ConvertSpec::mesh
};

// A plan for parameters and for the optimizer's state.
struct TensorParallel {
  ParallelPlan plan;
  std::string axis = "tp";  // of ConvertSpec::mesh
};

// The result that a conversion makes.
struct ConvertSpec {
  OpenOptions open;
  // If absent, it follows from the destination's name (FormatFromSuffix). For
  // other names the result is a directory in the source's format, or DCP for a
  // .pt source.
  std::optional<Format> to;
  // Lays the output out as that framework does: kAccelerate, in the format DCP.
  // If absent: the layout of the format.
  std::optional<Dialect> to_dialect;
  // For DCP output. If absent, chunks stay as they are in a DCP source; other
  // sources become one rank.
  std::optional<Mesh> mesh;
  std::vector<NamedMesh> other_meshes;
  std::vector<PlacementRule> placements;  // the last match wins
  // For tensors that no rule matches; see mesh_layout.h.
  std::optional<TensorParallel> tensor_parallel;
  bool consolidate = false;  // whole tensors even if `mesh` is absent
  SelectionOptions selection;
  uint64_t max_shard_bytes = 0;  // for safetensors and DCP files; 0: no limit
  bool drop_non_tensors = false;
  // Leaves out objects that the destination cannot hold because they could not
  // be read (ObjectEntry::unreadable), instead of failing. drop_non_tensors
  // implies it.
  bool drop_unreadable = false;
  // Converts a source although it cannot give back all that it has, such as the
  // shapes of weights (Checkpoint::losses()), instead of failing.
  bool allow_losses = false;
  bool overwrite = false;
  // Compares the bytes with the CRCs and digests that the source records.
  bool verify = true;
  // Refuses a cast when a value is beyond the new type's range.
  bool strict_cast = false;
  // For safetensors output: drop_metadata leaves out the source's __metadata__;
  // `metadata` adds values, or replaces those of the source.
  bool drop_metadata = false;
  std::vector<std::pair<std::string, std::string>> metadata;
  // Copies the source's config, tokenizer and generation files into a
  // safetensors directory.
  bool copy_config = true;
  // Copies those in this directory instead; NotFound if it has none. Empty:
  // those next to the source. Ignored for other outputs.
  std::string assets = {};
  // Compares the padding that a mapping leaves out with zero, and refuses to
  // lose anything else. Not done by PlanConvert.
  bool check_padding = false;
};

// How a conversion works, and who watches it.
struct ConvertRun {
  // Names this writer to others that try to write to the destination at the
  // same time.
  std::string writer = "a conversion";
  DirectMode direct = DirectMode::kAuto;  // for the destination
  uint32_t num_lanes = 0;                 // 0: chosen from cores and files
  uint64_t memory_bytes = kDefaultMemoryBytes;
  std::stop_token stop;
  TransferStats* stats = nullptr;  // watched by a progress display; optional
  // Called once with the plan before payload moves; optional.
  absl::AnyInvocable<void(const ConvertPlan&)> on_plan;
  // Called once with the plan before payload moves, by PlanConvert too. If it
  // returns an error, nothing is done and the error is returned. For memory
  // limits that the caller knows. Optional.
  std::function<absl::Status(const ConvertPlan&)> admit;
  // Called once when all files are written and the checkpoint is about to
  // appear; optional.
  absl::AnyInvocable<void()> on_commit;
  // Resumes where an earlier run was killed; optional.
  ConvertJournal* journal = nullptr;
  // Replaces the destination, which is then only a name. Gets, in order, the
  // bytes of the only file (safetensors, or torch.save's if `to` says so). The
  // last bytes come after everything has been checked, so that readers never
  // take an unchecked file for complete. Optional; not with a journal.
  ByteStream stream;
};

struct ConvertOptions : ConvertSpec, ConvertRun {};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_OPTIONS_H_
