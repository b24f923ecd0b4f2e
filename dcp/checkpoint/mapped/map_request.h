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
  // The rules, by one of these: a built-in family, such as "llama"; the path of
  // a rule file; a rule file's text.
  std::string family = {};
  std::string rule_file = {};
  std::string rules = {};
  // The source's and the result's spelling: sides in the rules, such as "hf"
  // and "torchtitan".
  std::string from = {};
  std::string to = {};
  // The model's config.json, by path or text. Without both: the source's, or
  // the one next to the source; see model_config.h.
  std::string config_file = {};
  std::string config = {};
  // Numbers in the rules, by name: {{"vocab_multiple", 128}}.
  MappingSettings settings = {};
  MapOptions::Parts parts = MapOptions::Parts::kAll;
  MapOptions::Unmatched unmatched = MapOptions::Unmatched::kError;
  // As in MapOptions: globs for names that may be missing, and whether the
  // model may have another type than the rules are for.
  std::vector<std::string> allow_missing = {};
  bool force_family = false;
  // As in MapSpec.
  std::string model_from = {};
  std::string model_to = {};
  std::string states_from = {};
  std::string states_to = {};
};

// The mapping, for any checkpoint: without a config.json unless the request
// names one. InvalidArgument if the request contradicts itself, or if the rules
// are malformed or do not have the sides; NotFound for a family or a file that
// does not exist; otherwise errors from reading.
absl::StatusOr<MapSpec> ReadMap(FileSystem& fs, const MapRequest& request);

// The mapping for the checkpoint at `source`. The config.json is the request's,
// or the one found in or next to `source`. Errors are those of ReadMap and
// FindModelConfig.
absl::StatusOr<std::shared_ptr<const MapSpec>> FindMap(
    FileSystem& fs, absl::string_view source, const MapRequest& request);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_MAPPED_MAP_REQUEST_H_
