// SPDX-License-Identifier: Apache-2.0
// The golden pairs of mappings (tests/dcp/maps/golden_pairs.h): as clients ask
// a server for them, and as this process converts them. For tests.
#ifndef TESTS_SERVER_GOLDEN_MAPS_H_
#define TESTS_SERVER_GOLDEN_MAPS_H_

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/lens/model_config.h"
#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "proto/messages/map_messages.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/dcp/maps/golden_pairs.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {

// The pair's family, from the spelling in transformers to the other.
inline tessera::v1::MapSpec PairMapSpec(const testing::GoldenPair& pair) {
  tessera::v1::MapSpec map;
  map.set_builtin(pair.mapping);
  map.set_from_side("hf");
  map.set_to_side(pair.side);
  map.mutable_settings()->insert(pair.settings.begin(), pair.settings.end());
  return map;
}

// Copies the pair's model, with the config.json, into a separate directory
// below `directory`. Returns the checkpoint's path.
inline std::string CopyModel(const testing::GoldenPair& pair,
                             const std::string& directory) {
  const std::string to = JoinPath(directory, pair.model);
  std::filesystem::create_directories(to);
  std::string path;
  for (const std::string& name :
       {std::string("config.json"), absl::StrCat(pair.file, ".safetensors")}) {
    path = JoinPath(to, name);
    std::filesystem::copy_file(
        testing::GoldenPath(pair.model, name), path,
        std::filesystem::copy_options::overwrite_existing);
  }
  return path;
}

inline OpenOptions OpenThrough(FileSystem& fs, const std::string& source,
                               const tessera::v1::MapSpec& map) {
  OpenOptions open;
  absl::StatusOr<MapSpec> spec = MapFromProto(map, "map");
  EXPECT_OK(spec);
  if (!spec.ok()) return open;
  open.map = std::make_shared<const MapSpec>(*std::move(spec));
  EXPECT_OK(AddModelConfig(fs, source, open));
  return open;
}

// The result, by name, when this process converts `source`.
inline std::vector<testing::ArrayTensor> ConvertHere(
    const std::string& source, const tessera::v1::MapSpec& map,
    const std::string& destination) {
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  ConvertOptions options;
  options.open = OpenThrough(*fs, source, map);
  options.overwrite = true;
  EXPECT_OK(ConvertCheckpoint(*fs, source, destination, std::move(options)));
  return testing::TensorsIn(destination);
}

}  // namespace dcp::server

#endif  // TESTS_SERVER_GOLDEN_MAPS_H_
