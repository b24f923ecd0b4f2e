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
// For each field on the wire: a place in an array that grows by doubling, or
// among the unknown fields.
constexpr uint64_t kFieldBytes = 40;
// The bytes that malloc adds to a block.
constexpr uint64_t kBlockBytes = 16;
// A message in a map, with the map's node.
constexpr uint64_t kMapEntryBytes = 192;
// A number of one byte becomes one of eight, in an array that grows by
// doubling.
constexpr uint64_t kPackedExpansion = 16;

class Sizer {
 public:
  explicit Sizer(uint64_t most) : most_(most) {}

  uint64_t size() const { return size_; }

  // Adds the memory for a message of that type, until the sum exceeds the
  // maximum.
  void Add(const Descriptor& type, CodedInputStream& wire, int depth) {
    while (size_ <= most_) {
      const uint32_t tag = wire.ReadTag();
      if (tag == 0) return;
      size_ += kFieldBytes;
      switch (WireFormatLite::GetTagWireType(tag)) {
        case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
          uint32_t length = 0;
          if (!wire.ReadVarint32(&length)) return;
          const auto limit = wire.PushLimit(static_cast<int>(length));
          AddBlock(
              type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag)),
              length, wire, depth);
          if (!wire.Skip(wire.BytesUntilLimit())) return;
          wire.PopLimit(limit);
          break;
        }
        case WireFormatLite::WIRETYPE_START_GROUP:
        case WireFormatLite::WIRETYPE_END_GROUP:
          break;  // only among unknown fields
        default:
          if (!WireFormatLite::SkipField(&wire, tag)) return;
      }
    }
  }

 private:
  void AddBlock(const FieldDescriptor* field, uint64_t length,
                CodedInputStream& wire, int depth) {
    if (field == nullptr || field->type() == FieldDescriptor::TYPE_STRING ||
        field->type() == FieldDescriptor::TYPE_BYTES) {
      size_ += sizeof(std::string) + length + 2 * kBlockBytes;
      return;
    }
    if (field->type() != FieldDescriptor::TYPE_MESSAGE) {
      size_ += length * kPackedExpansion;
      return;
    }
    if (depth == kMaxDepth) return;
    const Descriptor& type = *field->message_type();
    size_ += EmptyMessageBytes(type) + kBlockBytes;
    Add(type, wire, depth + 1);
  }

  // For an empty message.
  uint64_t EmptyMessageBytes(const Descriptor& type) {
    if (type.options().map_entry()) return kMapEntryBytes;
    uint64_t& bytes = empty_bytes_[&type];
    if (bytes == 0) {
      bytes = google::protobuf::MessageFactory::generated_factory()
                  ->GetPrototype(&type)
                  ->SpaceUsedLong();
    }
    return bytes;
  }

  const uint64_t most_;
  uint64_t size_ = 0;
  absl::flat_hash_map<const Descriptor*, uint64_t> empty_bytes_;
};

}  // namespace

uint64_t ParsedSize(const Descriptor& type, absl::string_view wire,
                    uint64_t most) {
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(wire.data()),
                          static_cast<int>(wire.size()));
  Sizer sizer(most);
  sizer.Add(type, stream, 0);
  return sizer.size();
}

}  // namespace dcp::server
