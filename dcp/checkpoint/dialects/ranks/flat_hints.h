// SPDX-License-Identifier: Apache-2.0
// FlatHints: the user's facts about FSDP1's flat parameters, because their
// checkpoints do not record them: the parameters in each, or only their shapes.
// Any thread.
#ifndef DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_HINTS_H_
#define DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_HINTS_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/dialects/ranks/flat_vector.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"

namespace dcp {

// One flat parameter in a layout.
struct FlatUnit {
  std::vector<FlatParameter> parameters;
  int64_t numel = 0;  // with padding between and behind them
};

struct FlatHints {
  bool has_layout = false;
  bool has_like = false;
  absl::flat_hash_map<std::string, FlatUnit> units;  // from the layout
  absl::flat_hash_map<std::string, Dims> shapes;     // from both
  std::string unit_glob;                             // DialectOptions

  // The unit with this name. InvalidArgument if the layout has none, or one
  // with another size.
  absl::StatusOr<const FlatUnit*> Find(absl::string_view flat,
                                       int64_t numel) const;
  // The shape of a parameter with `numel` elements. InvalidArgument if there is
  // none, or one with another size.
  absl::StatusOr<Dims> FindShape(absl::string_view name, int64_t numel) const;
};

// Parses [{"flat": name, "params": [{"name": ..., "shape": [...]} or
// {"padding": n}, ...]}, ...]. DataLoss for anything else.
absl::Status ParseFlatLayout(absl::string_view json, FlatHints& hints);

// Reads the files that the options name. Errors name the file.
absl::StatusOr<FlatHints> ReadFlatHints(FileSystem& fs,
                                        const DialectOptions& options,
                                        const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIALECTS_RANKS_FLAT_HINTS_H_
