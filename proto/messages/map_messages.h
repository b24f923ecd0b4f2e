// SPDX-License-Identifier: Apache-2.0
// Mappings as messages and back. A rule file of a client is hostile: reading it
// is bounded (dcp/mapping/language/mapping_limits.h), but may take a second and
// the memory that MapMemoryBytes says. Pure; any thread.
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

// What is quickly seen to be wrong with a mapping: InvalidArgument begins with
// the name of the field. `field` is the path of the message.
absl::Status CheckMap(const tessera::v1::MapSpec& map, absl::string_view field);

// The mapping of a message that has passed CheckMap, without the config.json
// that the source may have. InvalidArgument names the field, and for a rule
// file its line and column.
absl::StatusOr<MapSpec> MapFromProto(const tessera::v1::MapSpec& map,
                                     absl::string_view field);
// Sends the text of the rules, so that the server uses the same ones.
void MapToProto(const MapSpec& map, tessera::v1::MapSpec& proto);

// An estimate of what it takes to read the mapping and its config.json, and to
// apply it to a model.
uint64_t MapMemoryBytes(const tessera::v1::MapSpec& map);

}  // namespace dcp

#endif  // PROTO_MESSAGES_MAP_MESSAGES_H_
