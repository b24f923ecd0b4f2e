// SPDX-License-Identifier: Apache-2.0
// MapRequest: the mapping that a program asks for, by names, paths and texts,
// before anything is read; ReadMap and FindMap read it. Plain data; both
// functions block, on any thread.
#ifndef DCP_CHECKPOINT_MAPPED_MAP_REQUEST_H_
#define DCP_CHECKPOINT_MAPPED_MAP_REQUEST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "dcp/io/file_system.h"
#include "dcp/mapping/application/mapping.h"

namespace dcp {

struct MapRequest {
  // The rules, by one of these: a family that is built in, such as "llama"; the
  // path of a rule file; the text of one.
  std::string family = {};
  std::string rule_file = {};
  std::string rules = {};
  // How the source spells the model, and how the result shall: sides of the
  // rules, such as "hf" and "torchtitan".
  std::string from = {};
  std::string to = {};
  // The config.json of the model, by its path or its text. Without both it is
  // that of the source, or the one next to it; see model_config.h.
  std::string config_file = {};
  std::string config = {};
  // Numbers of the rules, by name: {{"vocab_multiple", 128}}.
  MappingSettings settings = {};
  MapOptions::Parts parts = MapOptions::Parts::kAll;
  MapOptions::Unmatched unmatched = MapOptions::Unmatched::kError;
  // As in MapOptions: globs of names that may be missing, and whether the model
  // may be of another type than the rules are for.
  std::vector<std::string> allow_missing = {};
  bool force_family = false;
  // As in MapSpec.
  std::string model_from = {};
  std::string model_to = {};
  std::string states_from = {};
  std::string states_to = {};
};

// The mapping, for whatever checkpoint: without a config.json unless the
// request names one. InvalidArgument if the request contradicts itself, if the
// rules are malformed or do not have the sides; NotFound for a family or a file
// that does not exist; otherwise the errors of reading.
absl::StatusOr<MapSpec> ReadMap(FileSystem& fs, const MapRequest& request);

// The mapping for the checkpoint at `source`, whose config.json is that of the
// request, or the one that is found in or next to `source`. Errors are those of
// ReadMap and FindModelConfig.
absl::StatusOr<std::shared_ptr<const MapSpec>> FindMap(
    FileSystem& fs, absl::string_view source, const MapRequest& request);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_MAPPED_MAP_REQUEST_H_
