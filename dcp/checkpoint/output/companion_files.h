// SPDX-License-Identifier: Apache-2.0
// CompanionFiles: the files that Hugging Face keeps next to a model's tensors,
// so that programs can use it: config, tokenizer, generation and processor
// files. A conversion copies them unchanged, except for the tensor type that a
// config names. Any thread.
#ifndef DCP_CHECKPOINT_OUTPUT_COMPANION_FILES_H_
#define DCP_CHECKPOINT_OUTPUT_COMPANION_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/dtype.h"

namespace dcp {

// One file's maximum size. The largest tokenizers have about 40 MB.
inline constexpr uint64_t kMaxCompanionBytes = uint64_t{128} << 20;

struct CompanionFiles {
  std::unique_ptr<SourceFiles> files;  // open; null if there are none
  std::vector<uint64_t> sizes;         // bytes; parallel to files->names()
  // Python files next to the model, which are not copied: elsewhere, a copy
  // would run as code that nobody there has seen.
  std::vector<std::string> code;
  // Everything else in the directory, without hidden files; a folder ends in a
  // slash. Some may be model files.
  std::vector<std::string> others;

  // Whether some are in folders.
  bool has_folders() const;
};

// "config.json", "tokenizer.model" and similar names.
bool IsCompanionName(absl::string_view name);

// The companion files of the model at `source`, a directory or an index in it.
// For verl they are in the folder huggingface. For sentence-transformers they
// include those in the folders that modules.json names: the config and the
// weights of each module behind the model. None for a single file.
// FailedPrecondition for a file that is not a regular file in the directory
// (only links into the blobs of a model hub's cache are followed) or is larger
// than kMaxCompanionBytes. `fs` must outlive the result.
absl::StatusOr<CompanionFiles> FindCompanionFiles(FileSystem& fs,
                                                  absl::string_view source);

// The companion files in `directory`, as above. NotFound if there are none;
// also returns errors from reading it.
absl::StatusOr<CompanionFiles> CompanionFilesIn(FileSystem& fs,
                                                absl::string_view directory);

// Changes to a model's config.json while it is copied.
struct ConfigEdits {
  // Replaces the tensor type, because loaders use that type unless told
  // otherwise.
  std::optional<DType> tensor_type = {};
  // Removes the quantization entry, because the tensors are not quantized.
  bool drops_quantization = false;
  // The value for "quantization_config", as JSON, because the tensors were
  // encoded; empty: no change. With a value, nothing is removed.
  std::string quantization = {};
};

// Adds the files to `output`; `companions` must outlive it. Returns the keys
// that were left out of a config.json. Errors come from reading that file.
absl::StatusOr<std::vector<std::string>> AddCompanionFiles(
    FileSystem& fs, const CompanionFiles& companions, const ConfigEdits& wanted,
    Output& output);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_COMPANION_FILES_H_
