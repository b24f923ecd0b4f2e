// SPDX-License-Identifier: Apache-2.0
// Mappings as messages and back. A client's rule file is hostile: reading it is
// bounded (dcp/mapping/language/mapping_limits.h), but may take a second and
// MapMemoryBytes of memory. Pure; any thread.
#ifndef PROTO_MESSAGES_MAP_MESSAGES_H_
#define PROTO_MESSAGES_MAP_MESSAGES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/map_spec.h"
#include "tessera/v1/checkpoint.pb.h"

namespace dcp {

// Finds the mistakes in a mapping that are quick to find: InvalidArgument
// begins with the field's name. `field` is the message's path.
absl::Status CheckMap(const tessera::v1::MapSpec& map, absl::string_view field);

// The mapping in a message that has passed CheckMap, without the config.json
// that the source may have. InvalidArgument names the field, and for a rule
// file the line and column.
absl::StatusOr<MapSpec> MapFromProto(const tessera::v1::MapSpec& map,
                                     absl::string_view field);
// Sends the rules' text, so that the server uses the same ones.
void MapToProto(const MapSpec& map, tessera::v1::MapSpec& proto);

// An estimate of the memory for reading the mapping and the config.json and
// applying them to a model.
uint64_t MapMemoryBytes(const tessera::v1::MapSpec& map);

}  // namespace dcp

#endif  // PROTO_MESSAGES_MAP_MESSAGES_H_
