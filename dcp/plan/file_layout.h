// SPDX-License-Identifier: Apache-2.0
// A file before it exists: parts, one after the other, each with some literal
// bytes followed by some payload bytes. All lengths and offsets are known
// beforehand; the bytes are not. Pure data; any thread.
#ifndef DCP_PLAN_FILE_LAYOUT_H_
#define DCP_PLAN_FILE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace dcp {

// For a literal that needs no checksums.
inline constexpr uint32_t kNeedsNoPart = UINT32_MAX;

// Literal bytes [offset, offset + literal_length), then payload bytes.
struct LayoutPart {
  uint64_t offset = 0;
  uint64_t literal_length = 0;
  uint64_t payload_length = 0;
  // the caller's index; meaningless if there is no payload
  uint32_t payload = 0;
  // The literal holds payload checksums for the parts from this one up to the
  // literal's own.
  uint32_t needs_from = kNeedsNoPart;

  uint64_t payload_offset() const { return offset + literal_length; }
  uint64_t end() const { return offset + literal_length + payload_length; }
};

class FileLayout {
 public:
  explicit FileLayout(std::string name) : name_(std::move(name)) {}

  // Adds a part at the end and returns the index. The caller has checked that
  // the file size fits into 64 bits.
  size_t Append(uint64_t literal_length, uint64_t payload_length,
                uint32_t payload, uint32_t needs_from = kNeedsNoPart);

  // Adds `by` to each payload number. For joining outputs.
  void ShiftPayloads(uint32_t by);

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  uint64_t size() const { return size_; }
  const std::vector<LayoutPart>& parts() const { return parts_; }

  // The pieces in the file range [offset, offset + length), in order: calls
  // `visit(part, literal, begin, end)` with begin and end relative to the
  // part's literal or payload, never with an empty piece. The range must lie
  // inside the file.
  void ForEachPiece(uint64_t offset, uint64_t length,
                    absl::FunctionRef<void(size_t part, bool literal,
                                           uint64_t begin, uint64_t end)>
                        visit) const;

 private:
  std::string name_;
  uint64_t size_ = 0;
  std::vector<LayoutPart> parts_;
};

}  // namespace dcp

#endif  // DCP_PLAN_FILE_LAYOUT_H_
