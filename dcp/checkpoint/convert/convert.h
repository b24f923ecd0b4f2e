// Convert: reads any checkpoint and writes it in any format and for any mesh,
// block by block within a memory budget. Resharding and consolidating are
// conversions with other options. The destination appears whole or not at all
// (see destination.h). Blocking; any thread.
#ifndef DCP_CHECKPOINT_CONVERT_CONVERT_H_
#define DCP_CHECKPOINT_CONVERT_CONVERT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/error_side.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/open/selection.h"
#include "dcp/checkpoint/read/source_check.h"
#include "dcp/checkpoint/write/byte_stream.h"
#include "dcp/io/file_system.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/placement.h"

namespace dcp {

inline constexpr uint64_t kDefaultMemoryBytes = uint64_t{256} << 20;

struct ConvertJournal;  // dcp/checkpoint/convert/convert_journal.h

struct PlacementRule {
  std::string glob;
  Placements placements;  // one per axis of the mesh
};

struct ConvertOptions {
  OpenOptions open;
  // If absent, it follows from the destination's name (.safetensors, .pt, .pth,
  // .bin; else a directory in the source's format, or DCP for a .pt source).
  std::optional<Format> to;
  // For DCP output. If absent, chunks stay as they are in a DCP source; other
  // sources become one rank.
  std::optional<Mesh> mesh;
  std::vector<PlacementRule> placements;  // the last match wins
  bool consolidate = false;  // whole tensors even if `mesh` is absent
  SelectionOptions selection;
  uint64_t max_shard_bytes = 0;  // for safetensors and DCP files; 0: no limit
  bool drop_non_tensors = false;
  // Leaves out objects that the destination cannot hold because they could not
  // be read (ObjectEntry::unreadable), instead of failing. drop_non_tensors
  // implies it.
  bool drop_unreadable = false;
  bool overwrite = false;
  // Compares what is read with the CRCs and digests that the source records.
  bool verify = true;
  // Refuses a cast when a value is beyond the range of the new type.
  bool strict_cast = false;
  // For safetensors output: drop_metadata leaves out the source's own
  // __metadata__; `metadata` (below) adds values or replaces the source's.
  bool drop_metadata = false;
  // Copies config, tokenizer and generation files of a source directory into a
  // safetensors directory.
  bool copy_companions = true;
  std::vector<std::pair<std::string, std::string>> metadata;
  // Who writes; shown to others that try to write to the destination at the
  // same time.
  std::string writer = "a conversion";
  DirectMode direct = DirectMode::kAuto;  // for the destination
  uint32_t num_lanes = 0;                 // 0: chosen from cores and files
  uint64_t memory_bytes = kDefaultMemoryBytes;
  std::stop_token stop;
  TransferStats* stats = nullptr;  // watched by a progress display; optional
  // Called once before payload moves, with what will be moved; optional.
  absl::AnyInvocable<void(const struct ConvertPlan&)> on_plan;
  // Called once before payload moves, by PlanConvert too, with the plan; if it
  // returns an error, nothing is done and the error is returned. For memory
  // limits that the caller knows. Optional.
  std::function<absl::Status(const struct ConvertPlan&)> admit;
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

// A tensor in which a cast changed more than the precision.
struct CastLoss {
  std::string name;
  DType dtype = DType::kFloat32;  // in the output
  // Elements beyond its range, including those in files that an earlier run
  // wrote.
  uint64_t num_beyond = 0;
};

// What a conversion will do, or did.
struct ConvertPlan {
  Format from;
  Format to;
  struct OutputFile {
    std::string name;  // in the destination, or the destination's own
    uint64_t bytes;
  };
  std::vector<OutputFile> files;
  uint64_t num_tensors = 0;
  uint64_t num_objects = 0;
  // In a plan, the payload bytes that will be read according to the schedule of
  // reads, with gaps and repetitions, and those that the check of the source
  // reads again. When converting, the payload that is needed.
  uint64_t bytes_to_read = 0;
  uint64_t bytes_to_write = 0;  // of all files
  uint64_t memory_bytes = 0;    // payload blocks in use
  uint64_t index_bytes = 0;     // estimated maximum, besides memory_bytes
  uint32_t num_lanes = 0;
  std::vector<std::string> dropped;  // names of objects left out
  // Code next to the source that is not copied together with config and
  // tokenizer.
  std::vector<std::string> code_left_out;
  // Keys of the source's metadata that the output cannot hold.
  std::vector<std::string> dropped_metadata;
  // What an earlier run has done: the number of complete files, and the bytes
  // read and written for them.
  uint64_t num_files_kept = 0;
  uint64_t bytes_kept = 0;
  SourceCheckReport check;            // of the source; empty in a plan
  std::vector<CastLoss> cast_losses;  // empty in a plan
};

// Only plans; writes nothing. Errors are those of ConvertCheckpoint that need
// no payload to detect.
absl::StatusOr<ConvertPlan> PlanConvert(FileSystem& fs, absl::string_view src,
                                        absl::string_view dst,
                                        ConvertOptions options);

// AlreadyExists when `dst` exists and overwrite is off. FailedPrecondition when
// overwriting would destroy files that are not part of a checkpoint, when a
// safetensors file cannot hold some values of the source (the error names
// them), or when a strict cast meets a value beyond the range. DataLoss when
// the source contradicts its own CRCs or digests. ResourceExhausted when the
// disk cannot hold all files together, or when the memory is too small.
// Cancelled after a stop. Otherwise the errors of Checkpoint::Open. SideOf
// (dcp/base/error_side.h) tells whether the source or the destination failed.
absl::StatusOr<ConvertPlan> ConvertCheckpoint(FileSystem& fs,
                                              absl::string_view src,
                                              absl::string_view dst,
                                              ConvertOptions options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_CONVERT_CONVERT_H_
