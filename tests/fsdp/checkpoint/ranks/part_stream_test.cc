// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/ranks/part_stream.h"

#include <cstdint>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

// Views that are read in another order than they lie in memory.
std::vector<at::Tensor> Views(at::ScalarType type) {
  const at::Tensor base = at::arange(2 * 5 * 7).to(type).view({2, 5, 7});
  return {base,
          base.transpose(0, 2),
          base.narrow(1, 1, 3).narrow(2, 2, 4),
          base.select(2, 3),
          base.slice(2, 0, 7, 3),
          base.narrow(0, 0, 0),
          at::arange(1).to(type).squeeze(0),
          base.permute({1, 2, 0}).narrow(0, 2, 2)};
}

// Element by element, the straightforward way.
std::vector<uint8_t> ElementBytes(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* const data = static_cast<const uint8_t*>(flat.const_data_ptr());
  return {data, data + flat.nbytes()};
}

TEST(PartStream, PiecesOfAnyLengthMatchTheParts) {
  for (const at::ScalarType type :
       {at::kBool, at::kBFloat16, at::kFloat, at::kComplexDouble}) {
    PartStream stream;
    std::vector<uint8_t> expected;
    for (const at::Tensor& view : Views(type)) {
      stream.Add(view, type);
      const std::vector<uint8_t> bytes = ElementBytes(view);
      expected.insert(expected.end(), bytes.begin(), bytes.end());
      expected.resize((expected.size() + 15) / 16 * 16);
    }
    ASSERT_EQ(stream.num_bytes(), expected.size());
    for (const uint64_t piece : {16u, 48u, 112u, 4096u, 1u << 20}) {
      SCOPED_TRACE(piece);
      std::vector<uint8_t> read(expected.size(), 0);
      for (uint64_t at = 0; at < read.size(); at += piece) {
        const uint64_t length = std::min<uint64_t>(piece, read.size() - at);
        stream.Read(at, dcp::MutableByteSpan(read).subspan(at, length));
      }
      EXPECT_EQ(read, expected);
    }
  }
}

TEST(PartStream, WritesTheReadBytesWithACast) {
  PartStream from;
  PartStream to;
  const std::vector<at::Tensor> sources = Views(at::kFloat);
  std::vector<at::Tensor> targets;
  for (const at::Tensor& source : sources) {
    from.Add(source, at::kFloat);
    // Other strides, another type.
    at::Tensor target = at::zeros(source.sizes(), at::kDouble);
    if (target.dim() == 3) {
      target = at::zeros({source.size(2), source.size(1), source.size(0)},
                         at::kDouble)
                   .transpose(0, 2);
    }
    targets.push_back(target);
    to.Add(target, at::kFloat);
  }
  ASSERT_EQ(from.num_bytes(), to.num_bytes());
  for (uint64_t at = 0; at < from.num_bytes(); at += 80) {
    std::vector<uint8_t> piece(std::min<uint64_t>(80, from.num_bytes() - at));
    from.Read(at, piece);
    to.Write(at, piece);
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_TRUE(at::equal(targets[i], sources[i].to(at::kDouble))) << i;
  }
}

}  // namespace
}  // namespace fsdp
