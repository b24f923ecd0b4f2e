// SPDX-License-Identifier: Apache-2.0
// Opens a DCP directory, or a model in safetensors or .bin files. Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_FORMATS_FORMAT_OPENERS_H_
#define DCP_CHECKPOINT_DIALECTS_FORMATS_FORMAT_OPENERS_H_

#include <stop_token>

#include "dcp/checkpoint/dialects/parts/dialect_opener.h"
#include "dcp/checkpoint/dialects/parts/source_directory.h"
#include "dcp/checkpoint/files/open_options.h"

namespace dcp {

// Opens a DCP directory; nullopt without .metadata.
MaybeParts TryOpenDcp(const SourceDirectory& directory,
                      const OpenOptions& options, const std::stop_token& stop);

// Opens a model in safetensors or .bin files; nullopt without them, and for the
// files of torch_checkpointing unless `options` name the dialect.
MaybeParts TryOpenModel(const SourceDirectory& directory,
                        const OpenOptions& options,
                        const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_FORMATS_FORMAT_OPENERS_H_
