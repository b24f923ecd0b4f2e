// SPDX-License-Identifier: Apache-2.0
// ConvertOptions: what a conversion makes (ConvertSpec), and how it works
// (ConvertRun). Plain data.
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
  Placements placements;  // one per axis of the mesh
  std::string mesh = {};  // one of other_meshes; empty: ConvertSpec::mesh
};

// Another arrangement of the same ranks, such as that of experts.
struct NamedMesh {
  std::string name;  // a word
  Mesh mesh;         // with as many ranks as ConvertSpec::mesh
};

// A plan that parameters and the optimizer's state of them lie by.
struct TensorParallel {
  ParallelPlan plan;
  std::string axis = "tp";  // of ConvertSpec::mesh
};

// What a conversion makes of its source.
struct ConvertSpec {
  OpenOptions open;
  // If absent, it follows from the destination's name (FormatFromSuffix); for
  // other names it is a directory in the source's format, or DCP for a .pt
  // source.
  std::optional<Format> to;
  // Lays the output out as that framework does: kAccelerate, whose format is
  // DCP. The format's own layout if absent.
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
  // Converts a source without what Checkpoint::losses() say it has and cannot
  // give back, such as the shapes of weights, instead of failing.
  bool allow_losses = false;
  bool overwrite = false;
  // Compares what is read with the CRCs and digests that the source records.
  bool verify = true;
  // Refuses a cast when a value is beyond the range of the new type.
  bool strict_cast = false;
  // For safetensors output: drop_metadata leaves out the source's own
  // __metadata__; `metadata` adds values or replaces the source's.
  bool drop_metadata = false;
  std::vector<std::pair<std::string, std::string>> metadata;
  // Copies config, tokenizer and generation files of a source directory into a
  // safetensors directory.
  bool copy_companions = true;
  // Copies those of this directory instead; NotFound if it has none. Empty: the
  // source's. Ignored for other outputs.
  std::string companions_from = {};
  // Compares what a mapping leaves out because it is padding with zero, and
  // refuses to lose anything else. Not done by PlanConvert.
  bool check_padding = false;
};

// How a conversion works, and who watches it.
struct ConvertRun {
  // Who writes; shown to others that try to write to the destination at the
  // same time.
  std::string writer = "a conversion";
  DirectMode direct = DirectMode::kAuto;  // for the destination
  uint32_t num_lanes = 0;                 // 0: chosen from cores and files
  uint64_t memory_bytes = kDefaultMemoryBytes;
  std::stop_token stop;
  TransferStats* stats = nullptr;  // watched by a progress display; optional
  // Called once before payload moves, with what will be moved; optional.
  absl::AnyInvocable<void(const ConvertPlan&)> on_plan;
  // Called once before payload moves, by PlanConvert too, with the plan; if it
  // returns an error, nothing is done and the error is returned. For memory
  // limits that the caller knows. Optional.
  std::function<absl::Status(const ConvertPlan&)> admit;
  // Called once when all files are written and the checkpoint is about to
  // appear; optional.
  absl::AnyInvocable<void()> on_commit;
  // Resumes where an earlier run was killed; optional.
  ConvertJournal* journal = nullptr;
  // Replaces the destination, which is then only a name: gets the bytes of the
  // only file that is made (safetensors, or torch.save's if `to` says so), in
  // order. The last bytes come after everything has been checked, so that
  // readers never take an unchecked file for complete. Optional; not with a
  // journal.
  ByteStream stream;
};

struct ConvertOptions : ConvertSpec, ConvertRun {};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_OPTIONS_H_
