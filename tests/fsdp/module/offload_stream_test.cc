// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/offload_stream.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/complex.h"
#include "ATen/ops/full.h"
#include "ATen/ops/imag.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "c10/core/StorageImpl.h"
#include "c10/util/Exception.h"
#include "c10/util/intrusive_ptr.h"
#include "gtest/gtest.h"
#include "tests/fsdp/module_snapshot.h"

namespace fsdp::testing {
namespace {

using Parcel = OffloadStream::Parcel;

constexpr int64_t kElements = 10;
constexpr uint64_t kBytes = kElements * sizeof(float);

// Parcels with one tensor each, filled with the parcel's index; nothing else
// holds the tensors.
class Packed {
 public:
  explicit Packed(OffloadStream& stream) : stream_(stream) {}

  void Pack(int count) {
    for (int i = 0; i < count; ++i) {
      parcels_.emplace_back(std::make_unique<Parcel>(
          stream_,
          at::full({kElements}, static_cast<double>(parcels_.size()))));
    }
  }
  // As backward does: unpacks it, and then ends it.
  void Use(size_t index) {
    EXPECT_EQ(Unpack(index)[0].item<double>(), static_cast<double>(index));
    parcels_[index].reset();
  }
  at::Tensor Unpack(size_t index) { return parcels_[index]->Unpack(); }
  void End(size_t index) { parcels_[index].reset(); }

 private:
  OffloadStream& stream_;
  std::vector<std::unique_ptr<Parcel>> parcels_;
};

TEST(OffloadStream, HoldsTensorsThatFitTheWindow) {
  OffloadStream stream(at::kCPU, 3 * kBytes);
  Packed packed(stream);
  packed.Pack(3);
  EXPECT_EQ(stream.held_bytes(), 3 * kBytes);
  packed.Pack(5);
  EXPECT_EQ(stream.held_bytes(), 3 * kBytes);
  // The last three are held, so nothing comes back for them.
  EXPECT_EQ(packed.Unpack(7).data_ptr(), packed.Unpack(7).data_ptr());
  EXPECT_NE(packed.Unpack(4).data_ptr(), packed.Unpack(4).data_ptr());
  packed.End(6);
  EXPECT_EQ(stream.held_bytes(), 2 * kBytes);
  for (const size_t index : {7, 5, 4, 3, 2, 1, 0}) packed.Use(index);
  EXPECT_EQ(stream.held_bytes(), 0u);
  EXPECT_EQ(stream.fetched_bytes(), 0u);
}

TEST(OffloadStream, FreesTheOldest) {
  OffloadStream stream(at::kCPU, kBytes);
  const auto storage = [](const at::Tensor& tensor) {
    return c10::weak_intrusive_ptr<c10::StorageImpl>(
        tensor.storage().getWeakStorageImpl());
  };
  at::Tensor first = at::zeros({kElements});
  const auto memory = storage(first);
  const Parcel parcel(stream, first);
  first.reset();
  EXPECT_FALSE(memory.expired());
  const Parcel next(stream, at::zeros({1}));
  EXPECT_TRUE(memory.expired());
}

TEST(OffloadStream, DoesNotHoldTensorsLargerThanTheWindow) {
  OffloadStream stream(at::kCPU, 2 * kBytes);
  Packed packed(stream);
  packed.Pack(1);
  const at::Tensor large = at::arange(kElements * 3);
  // A view keeps the whole storage.
  Parcel view(stream, large.narrow(0, 2, 2));
  EXPECT_EQ(stream.held_bytes(), 0u);
  EXPECT_TRUE(view.Unpack().equal(large.narrow(0, 2, 2)));
  Parcel whole(stream, large);
  EXPECT_EQ(stream.held_bytes(), 0u);
  EXPECT_TRUE(whole.Unpack().equal(large));
  packed.Use(0);
}

TEST(OffloadStream, FetchesTensorsPackedBefore) {
  OffloadStream stream(at::kCPU, 2 * kBytes);
  Packed packed(stream);
  packed.Pack(7);  // 5 and 6 are held
  packed.Use(6);
  EXPECT_EQ(stream.fetched_bytes(), 2 * kBytes);  // 4 and 3
  packed.Use(5);
  EXPECT_EQ(stream.fetched_bytes(), 2 * kBytes);
  packed.Use(4);
  EXPECT_EQ(stream.fetched_bytes(), 2 * kBytes);  // 3 and 2
  packed.Use(1);                                  // not yet fetched
  EXPECT_EQ(stream.fetched_bytes(), 2 * kBytes);
  packed.Use(3);
  EXPECT_EQ(stream.fetched_bytes(), 2 * kBytes);  // 2 and 0
  packed.Use(2);
  EXPECT_EQ(stream.fetched_bytes(), kBytes);
  packed.End(0);  // without use
  EXPECT_EQ(stream.fetched_bytes(), 0u);
}

TEST(OffloadStream, FetchesNothingTwice) {
  OffloadStream stream(at::kCPU, 2 * kBytes);
  Packed packed(stream);
  packed.Pack(4);  // 2 and 3 are held
  packed.End(3);
  packed.End(2);
  // An operator that has saved both asks for the first one first.
  packed.Unpack(0);
  packed.Unpack(1);
  EXPECT_EQ(stream.fetched_bytes(), 0u);
  // A graph that is retained is used again.
  packed.Use(1);
  packed.Use(0);
}

TEST(OffloadStream, ForwardDropsUnusedFetches) {
  OffloadStream stream(at::kCPU, 2 * kBytes);
  Packed packed(stream);
  packed.Pack(5);
  packed.Use(4);
  EXPECT_EQ(stream.fetched_bytes(), 2 * kBytes);
  packed.Pack(1);
  EXPECT_EQ(stream.fetched_bytes(), 0u);
  for (const size_t index : {5, 3, 2, 1, 0}) packed.Use(index);
}

TEST(OffloadStream, KeepsLayoutsAndValues) {
  OffloadStream stream(at::kCPU, 0);
  const at::Tensor matrix = at::randn({4, 6});
  const at::Tensor complex = at::complex(matrix, matrix + 1);
  for (const at::Tensor& tensor :
       {matrix, matrix.t(), matrix.narrow(1, 2, 3), matrix[0].expand({5, 6}),
        at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),
        at::zeros({0, 3}), at::full({}, 3.0), complex.conj(),
        at::imag(complex.conj()), matrix.to(at::kBFloat16)}) {
    Parcel parcel(stream, tensor);
    const at::Tensor back = parcel.Unpack();
    EXPECT_TRUE(back.equal(tensor)) << tensor.sizes() << tensor.strides();
    EXPECT_EQ(back.scalar_type(), tensor.scalar_type());
    if (tensor.is_non_overlapping_and_dense()) {
      EXPECT_EQ(back.strides(), tensor.strides());
    }
  }
}

TEST(OffloadStream, RefusesATensorThatWasModifiedWhileItWasHeld) {
  OffloadStream stream(at::kCPU, kBytes);
  const at::Tensor tensor = at::zeros({kElements});
  Parcel held(stream, tensor);
  tensor.add_(1);
  ExpectError<c10::Error>([&] { held.Unpack(); }, {"modified in place"});
  // The copy has ended when the next one replaces it.
  const at::Tensor next = at::zeros({kElements});
  Parcel freed(stream, next);
  ExpectError<c10::Error>([&] { held.Unpack(); }, {"modified in place"});
  const Parcel last(stream, tensor);
  next.add_(1);
  EXPECT_EQ(freed.Unpack().sum().item<double>(), 0);
}

TEST(OffloadStream, ServesSeveralThreads) {
  OffloadStream stream(at::kCPU, 5 * kBytes);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&stream] {
      for (int step = 0; step < 20; ++step) {
        Packed packed(stream);
        packed.Pack(20);
        std::thread([&packed] {
          for (size_t index = 20; index > 0; --index) packed.Use(index - 1);
        }).join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stream.held_bytes(), 0u);
  EXPECT_EQ(stream.fetched_bytes(), 0u);
}

}  // namespace
}  // namespace fsdp::testing
