// SPDX-License-Identifier: Apache-2.0

#include "server/memory/parsed_size.h"

#include <string>

#include "absl/container/flat_hash_map.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message.h"
#include "google/protobuf/wire_format_lite.h"

namespace dcp::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The same depth at which protobuf ends.
constexpr int kMaxDepth = 100;
// For each field on the wire: its place in an array that grows by doubling, or
// among the unknown fields.
constexpr uint64_t kFieldBytes = 40;
// What malloc adds to a block.
constexpr uint64_t kBlockBytes = 16;
// A message in a map, with its node.
constexpr uint64_t kMapEntryBytes = 192;
// A number of one byte becomes one of eight, in an array that grows by
// doubling.
constexpr uint64_t kPackedExpansion = 16;

class Sizer {
 public:
  uint64_t Size(const Descriptor& type, CodedInputStream& wire, int depth) {
    uint64_t size = 0;
    while (const uint32_t tag = wire.ReadTag()) {
      size += kFieldBytes;
      switch (WireFormatLite::GetTagWireType(tag)) {
        case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
          uint32_t length = 0;
          if (!wire.ReadVarint32(&length)) return size;
          const auto limit = wire.PushLimit(static_cast<int>(length));
          size += SizeOfBlock(
              type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag)),
              length, wire, depth);
          if (!wire.Skip(wire.BytesUntilLimit())) return size;
          wire.PopLimit(limit);
          break;
        }
        case WireFormatLite::WIRETYPE_START_GROUP:
        case WireFormatLite::WIRETYPE_END_GROUP:
          break;  // only among unknown fields
        default:
          if (!WireFormatLite::SkipField(&wire, tag)) return size;
      }
    }
    return size;
  }

 private:
  uint64_t SizeOfBlock(const FieldDescriptor* field, uint64_t length,
                       CodedInputStream& wire, int depth) {
    if (field == nullptr || field->type() == FieldDescriptor::TYPE_STRING ||
        field->type() == FieldDescriptor::TYPE_BYTES) {
      return sizeof(std::string) + length + 2 * kBlockBytes;
    }
    if (field->type() != FieldDescriptor::TYPE_MESSAGE) {
      return length * kPackedExpansion;
    }
    if (depth == kMaxDepth) return 0;
    const Descriptor& type = *field->message_type();
    return BytesOf(type) + kBlockBytes + Size(type, wire, depth + 1);
  }

  // Of an empty message.
  uint64_t BytesOf(const Descriptor& type) {
    if (type.options().map_entry()) return kMapEntryBytes;
    uint64_t& bytes = empty_bytes_[&type];
    if (bytes == 0) {
      bytes = google::protobuf::MessageFactory::generated_factory()
                  ->GetPrototype(&type)
                  ->SpaceUsedLong();
    }
    return bytes;
  }

  absl::flat_hash_map<const Descriptor*, uint64_t> empty_bytes_;
};

}  // namespace

uint64_t ParsedSize(const Descriptor& type, absl::string_view wire) {
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(wire.data()),
                          static_cast<int>(wire.size()));
  return Sizer().Size(type, stream, 0);
}

}  // namespace dcp::server
