// CompanionFiles: what Hugging Face keeps next to the tensors of a model, so
// that a program can use them: config, tokenizer, generation and processor
// files. A conversion takes them along as they are, but for the type of tensors
// in a config. Any thread.
#ifndef DCP_CHECKPOINT_COMPANION_FILES_H_
#define DCP_CHECKPOINT_COMPANION_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/output.h"
#include "dcp/checkpoint/source_files.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// The most bytes of one file. The largest tokenizers have some 40 MB.
inline constexpr uint64_t kMaxCompanionBytes = uint64_t{128} << 20;

struct CompanionFiles {
  std::unique_ptr<SourceFiles> files;  // open; null if there are none
  std::vector<uint64_t> sizes;         // bytes; parallel to files->names()
  // Python files next to the model, which are not taken along: a copy would run
  // elsewhere as code that nobody there has looked at.
  std::vector<std::string> code;
};

// "config.json", "tokenizer.model" and their like.
bool IsCompanionName(absl::string_view name);

// Those of the model at `source`, a directory or an index in it; none of a
// single file. FailedPrecondition for one that is not a regular file in the
// directory (links into the blobs of a model hub's cache are followed, no
// others) or is larger than kMaxCompanionBytes. `fs` outlives the result.
absl::StatusOr<CompanionFiles> FindCompanionFiles(FileSystem& fs,
                                                  absl::string_view source);

// Adds the files to `output`, which they outlive. Where the model's config
// names a type of its tensors it is made `tensor_type`, if that is given:
// loaders that are not told a type take the one of the config. An error is one
// of reading it.
absl::Status AddCompanionFiles(FileSystem& fs, const CompanionFiles& companions,
                               std::optional<DType> tensor_type,
                               Output& output);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_COMPANION_FILES_H_
