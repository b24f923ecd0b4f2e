// SPDX-License-Identifier: Apache-2.0
// Tensors in memory to save and to load into: MemorySource and MemorySink,
// which move nothing before Flush, because a GPU's copies may not either;
// SampleTensor, whole and with known values; SampleState, a SaveState that owns
// the tensors in it. Thread-compatible.

#ifndef TESTS_TESTING_SAMPLE_STATE_H_
#define TESTS_TESTING_SAMPLE_STATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/load/tensor_sink.h"
#include "dcp/checkpoint/output/tensor_source.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp::testing {

class MemorySource final : public TensorSource {
 public:
  explicit MemorySource(std::string bytes) : bytes_(std::move(bytes)) {}

  absl::Status Fill(uint64_t offset, MutableByteSpan dst) override;
  absl::Status Flush() override;

  // Fills that are not flushed yet.
  size_t num_pending() const { return pending_.size(); }
  uint64_t num_filled_bytes() const { return num_filled_bytes_; }
  // Fill fails with `status` once this many bytes were requested.
  void FailAfter(uint64_t num_bytes, absl::Status status) {
    fail_after_bytes_ = num_bytes;
    failure_ = std::move(status);
  }

 private:
  const std::string bytes_;
  std::vector<std::pair<uint64_t, MutableByteSpan>> pending_;
  uint64_t num_filled_bytes_ = 0;
  uint64_t fail_after_bytes_ = UINT64_MAX;
  absl::Status failure_;
};

class MemorySink final : public TensorSink {
 public:
  // With `direct`, a load may write to the memory directly.
  explicit MemorySink(uint64_t num_bytes, bool direct = false)
      : direct_(direct), bytes_(num_bytes, '\0') {}

  MutableByteSpan DirectSpan() override;
  absl::Status Place(uint64_t offset, ByteSpan src) override;
  absl::Status Flush() override;

  const std::string& bytes() const { return bytes_; }
  size_t num_pending() const { return pending_.size(); }
  // Exactly one placement of each byte is expected.
  uint64_t num_placed_bytes() const { return num_placed_bytes_; }
  // The next Place fails with `status`.
  void Fail(absl::Status status) { failure_ = std::move(status); }

 private:
  const bool direct_;
  std::string bytes_;
  std::vector<std::pair<uint64_t, ByteSpan>> pending_;
  uint64_t num_placed_bytes_ = 0;
  absl::Status failure_;
};

// Bytes that depend only on `seed`; no two parts are alike.
std::string RandomBytes(uint64_t seed, uint64_t num_bytes);

struct SampleTensor {
  // Has random bytes that depend on all arguments.
  SampleTensor(std::string name, DType type, Dims dims, uint64_t seed = 1);

  // The elements of `box`, row-major, copied one by one.
  std::string BytesOf(const Box& box) const;

  std::string fqn;
  DType dtype;
  Dims shape;
  std::string bytes;  // row-major
};

class SampleState {
 public:
  SampleState() = default;
  SampleState(const SampleState&) = delete;
  SampleState& operator=(const SampleState&) = delete;

  // Adds the whole tensor, or a part of it. This object keeps the source.
  MemorySource& Add(const SampleTensor& tensor);
  MemorySource& Add(const SampleTensor& tensor, const Box& box);
  void AddObject(absl::string_view fqn, Value value);

  SaveState& state() { return state_; }
  const SaveState& state() const { return state_; }
  ValueArena& arena() { return arena_; }
  // The tensors' sources, in the order of Add.
  const std::vector<std::unique_ptr<MemorySource>>& sources() const {
    return sources_;
  }

 private:
  SaveState state_;
  ValueArena arena_;
  std::vector<std::unique_ptr<MemorySource>> sources_;
};

}  // namespace dcp::testing

#endif  // TESTS_TESTING_SAMPLE_STATE_H_
