// SPDX-License-Identifier: Apache-2.0
// CompanionFiles: the files that Hugging Face keeps next to the tensors of a
// model, so that programs can use it: config, tokenizer, generation and
// processor files. A conversion copies them unchanged, except for what a config
// says of the type of tensors. Any thread.
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

// The maximum size of one file. The largest tokenizers have about 40 MB.
inline constexpr uint64_t kMaxCompanionBytes = uint64_t{128} << 20;

struct CompanionFiles {
  std::unique_ptr<SourceFiles> files;  // open; null if there are none
  std::vector<uint64_t> sizes;         // bytes; parallel to files->names()
  // Python files next to the model, which are not copied: elsewhere, a copy
  // would run as code that nobody there has seen.
  std::vector<std::string> code;
  // Everything else in the directory, without hidden files; a folder ends in a
  // slash. Files of the model may be among them.
  std::vector<std::string> others;

  // Whether some are in folders.
  bool has_folders() const;
};

// "config.json", "tokenizer.model" and similar names.
bool IsCompanionName(absl::string_view name);

// The companion files of the model at `source`, a directory or an index in it;
// those of verl are in its folder huggingface. Those of sentence-transformers
// are also in the folders that modules.json names: the config and the weights
// of each module behind the model. None for a single file.
// FailedPrecondition for a file that is not a regular file in the directory
// (only links into the blobs of a model hub's cache are followed) or is larger
// than kMaxCompanionBytes. `fs` must outlive the result.
absl::StatusOr<CompanionFiles> FindCompanionFiles(FileSystem& fs,
                                                  absl::string_view source);

// Those of `directory`, as above. NotFound if it has none; otherwise the errors
// of reading it, too.
absl::StatusOr<CompanionFiles> CompanionFilesIn(FileSystem& fs,
                                                absl::string_view directory);

// What changes in a model's config.json while it is copied.
struct ConfigEdits {
  // Replaces the type of tensors, because loaders use that type unless told
  // another.
  std::optional<DType> tensor_type = {};
  // Leaves out that the model is quantized, because its tensors are not.
  bool drops_quantization = false;
  // The value of "quantization_config", which is JSON, because the tensors were
  // encoded; empty: nothing. Then nothing is left out.
  std::string quantization = {};
};

// Adds the files to `output`; `companions` must outlive it. Returns the keys
// that were left out of a config.json. Errors come from reading it.
absl::StatusOr<std::vector<std::string>> AddCompanionFiles(
    FileSystem& fs, const CompanionFiles& companions, const ConfigEdits& wanted,
    Output& output);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OUTPUT_COMPANION_FILES_H_
