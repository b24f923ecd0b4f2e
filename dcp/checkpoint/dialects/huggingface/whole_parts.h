// SPDX-License-Identifier: Apache-2.0
// WholeParts: the models and optimizers in a folder from accelerate's
// save_state, for models that are not sharded: DistributedDataParallel or one
// process. A model is a file model.safetensors or pytorch_model.bin, or a
// folder with weights if the program saved it itself, as diffusers programs do.
// Any thread. Source: accelerate/checkpointing.py (1.15.0),
// diffusers/examples/text_to_image/train_text_to_image.py.
#ifndef DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_WHOLE_PARTS_H_
#define DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_WHOLE_PARTS_H_

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/dialects/parts/join_parts.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// Models first. Their names are model.NAME, model_1.NAME and so on, and
// model.FOLDER.NAME for one in a folder. The optimizers' numbers become names
// where these are certain; otherwise one part has this as a loss. Empty unless
// the directory has an optimizer or accelerate's random states, and a model.
// InvalidArgument if DialectOptions ask for an order that no file records.
absl::StatusOr<std::vector<PartToJoin>> OpenWholeParts(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop);

// Opens the optimizer in `file`, below `root`. The numbers become the names in
// `model`, if these are certain; `model` is null if it is not known which model
// the optimizer trains.
absl::StatusOr<PartToJoin> OpenOptimizer(const SourceDirectory& directory,
                                         const std::string& file,
                                         const std::string& root,
                                         const PartToJoin* model,
                                         const OpenOptions& options,
                                         const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_HUGGINGFACE_WHOLE_PARTS_H_
