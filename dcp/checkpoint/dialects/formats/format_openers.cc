// SPDX-License-Identifier: Apache-2.0
// Tries the openers of the formats.
// Tested by tests/dcp/checkpoint/open/directory_opener_test.cc.

#include "dcp/checkpoint/dialects/formats/format_openers.h"

#include <optional>

#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/parts/items_index.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/checkpoint/formats/model_opener.h"

namespace dcp {

MaybeParts TryOpenDcp(const SourceDirectory& directory,
                      const OpenOptions& options, const std::stop_token& stop) {
  if (!directory.Has(kDcpMetadataName)) return std::nullopt;
  return OpenDcp(*directory.fs, directory.path, kDcpMetadataName, options,
                 stop);
}

MaybeParts TryOpenModel(const SourceDirectory& directory,
                        const OpenOptions& options,
                        const std::stop_token& stop) {
  if (!options.dialect.from.has_value()) {
    DCP_ASSIGN_OR_RETURN(const bool has_items, HasItemsIndex(directory, stop));
    if (has_items) return std::nullopt;
  }
  DCP_ASSIGN_OR_RETURN(
      const std::optional<ModelFiles> model,
      FindModelFiles(*directory.fs, directory.path, directory.entries, stop));
  if (!model.has_value()) return std::nullopt;
  return OpenModel(*directory.fs, *model, options, stop);
}

}  // namespace dcp
