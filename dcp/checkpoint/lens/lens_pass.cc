// SPDX-License-Identifier: Apache-2.0
// Multiplies scales, adds adapters, averages and rescales elements in place.
// Tested by tests/tools/dcp_convert/options/lens_options_test.cc.
#include "dcp/checkpoint/lens/lens_pass.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/plan/strided/nest_run.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/element.h"
#include "dcp/tensor/float_codec.h"

namespace dcp {
namespace {

// The elements computed at a time: few enough for the first-level cache.
constexpr uint64_t kChunkElements = 256;

// Tables that are not larger are read whole, once for all windows.
constexpr uint64_t kSmallTableElements = uint64_t{1} << 18;

constexpr int kExponentBias = 127;

template <typename T>
constexpr DType kComputed =
    std::is_same_v<T, double> ? DType::kFloat64 : DType::kFloat32;

float FusedMultiplyAdd(float x, float y, float sum) {
  // Rounds once, because the product is exact.
  return static_cast<float>(sum + static_cast<double>(x) * y);
}
double FusedMultiplyAdd(double x, double y, double sum) {
  return std::fma(x, y, sum);
}

// The running mean after one more checkpoint. `divisor` is the sum of the
// weights divided by the checkpoint's.
template <typename T>
void AddToMean(T divisor, const T* x, std::span<T> mean) {
  for (size_t i = 0; i < mean.size(); ++i) {
    mean[i] += (x[i] - mean[i]) / divisor;
  }
}

bool HoldsExactly(DType stored, DType type) {
  return type == stored ||
         (type == DType::kFloat32 && stored != DType::kFloat64) ||
         type == DType::kFloat64;
}

// The smallest box that holds both.
Box CommonHull(const Box& a, const Box& b) {
  Box hull = a;
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    hull.offsets[i] = std::min(a.offsets[i], b.offsets[i]);
    hull.sizes[i] =
        std::max(a.offsets[i] + a.sizes[i], b.offsets[i] + b.sizes[i]) -
        hull.offsets[i];
  }
  return hull;
}

// How many of `count` elements from `number` on, in steps of `stride`, are
// adjacent in one row.
uint64_t NumInRow(uint64_t number, uint64_t stride, uint64_t count,
                  const Dims& shape) {
  if (stride != 1 || shape.empty()) return 1;
  const auto row = static_cast<uint64_t>(shape.back());
  return std::min(count, row - number % row);
}

// The part of the lensed tensor that the window needs; nullopt for no part.
std::optional<Box> NeededBounds(const LensedWindow& work) {
  const Box in_dst = WindowBounds(work.window.box, work.window.first,
                                  work.window.num_elements);
  std::optional<Box> bounds;
  Clip(work.part, PieceSide::kDst, in_dst, [&](const StridedPiece& part) {
    const Box box = FindBounds(part, PieceSide::kSrc);
    bounds = bounds.has_value() ? CommonHull(*bounds, box) : box;
  });
  return bounds;
}

}  // namespace

bool LensPass::Holds(const LensedTensor& tensor, DType type) {
  if (!HasFloatCodec(type)) return false;
  if (tensor.is_encoded()) return type == tensor.entry().dtype;
  if (tensor.kind() == LensedTensor::Kind::kScales) {
    return ElementSize(type) > 1;
  }
  return tensor.kind() == LensedTensor::Kind::kMean ||
         HoldsExactly(tensor.entry().dtype, type);
}

absl::Status LensPass::Run(const LensedWindow& work, ReadTable read) {
  const bool in_double = work.tensor->entry().dtype == DType::kFloat64;
  switch (work.tensor->kind()) {
    case LensedTensor::Kind::kScales:
      return Scale(work, read);
    case LensedTensor::Kind::kAdapter:
      return in_double ? Adapt<double>(work, read) : Adapt<float>(work, read);
    case LensedTensor::Kind::kMean:
      return in_double ? Average<double>(work, read)
                       : Average<float>(work, read);
    case LensedTensor::Kind::kRescale:
      return Rescale(work);
    case LensedTensor::Kind::kEncodedCodes:
    case LensedTensor::Kind::kEncodedScales:
      break;  // BlockEncoder makes them
  }
  return absl::InternalError("a lens pass cannot encode");
}

void LensPass::ForEachStretch(const LensedWindow& work,
                              absl::FunctionRef<void(const Stretch&)> visit) {
  const Dims& shape = work.tensor->shape();
  std::vector<NestRun> runs;
  // Offsets in this chunk count elements.
  AppendNestRuns(work.window,
                 {.box = WholeBox(shape),
                  .strides = RowMajorStrides(shape),
                  .element_bytes = 1},
                 work.part, runs);
  for (const NestRun& run : runs) {
    absl::Span<const CopyLoop> outer = run.loops;
    Stretch stretch{.src = 0,
                    .src_stride = 1,
                    .count = run.unit,
                    .dst = nullptr,
                    .dst_stride = run.dst_element_bytes};
    if (run.unit == 1 && !outer.empty()) {
      stretch.src_stride = outer.back().src_stride;
      stretch.count = outer.back().count;
      stretch.dst_stride = outer.back().dst_stride;
      outer.remove_suffix(1);
    }
    uint64_t steps = 1;
    for (const CopyLoop& loop : outer) steps *= loop.count;
    for (uint64_t step = 0; step < steps; ++step) {
      stretch.src = run.src;
      stretch.dst = work.dst + run.dst;
      uint64_t rest = step;
      for (size_t i = outer.size(); i-- > 0;) {
        const uint64_t digit = rest % outer[i].count;
        rest /= outer[i].count;
        stretch.src += digit * outer[i].src_stride;
        stretch.dst += digit * outer[i].dst_stride;
      }
      visit(stretch);
    }
  }
}

// Calls `run` with chunks of the stretch as T; `src` is the number of a chunk's
// first element. Puts the results back in place.
template <typename T>
void LensPass::Compute(
    const LensedWindow& work, const Stretch& stretch,
    absl::FunctionRef<void(uint64_t src, std::span<T> values)> run) {
  const uint64_t size = ElementSize(work.type);
  const bool is_dense = stretch.dst_stride == size;
  std::array<T, kChunkElements> numbers;
  std::array<uint8_t, kChunkElements * sizeof(double)> gathered;
  for (uint64_t done = 0; done < stretch.count; done += kChunkElements) {
    const uint64_t num = std::min(kChunkElements, stretch.count - done);
    uint8_t* const dst = stretch.dst + done * stretch.dst_stride;
    uint8_t* const at = is_dense ? dst : gathered.data();
    for (uint64_t i = 0; !is_dense && i < num; ++i) {
      std::memcpy(at + i * size, dst + i * stretch.dst_stride, size);
    }
    auto* const bytes = reinterpret_cast<uint8_t*>(numbers.data());
    TransformElements({.from = work.type, .to = kComputed<T>}, at, bytes, num);
    run(stretch.src + done * stretch.src_stride, {numbers.data(), num});
    TransformElements({.from = kComputed<T>, .to = work.type}, bytes, at, num,
                      work.num_beyond);
    for (uint64_t i = 0; !is_dense && i < num; ++i) {
      std::memcpy(dst + i * stretch.dst_stride, at + i * size, size);
    }
  }
}

template <typename T>
void LensPass::ForEachInRow(
    const LensedWindow& work,
    absl::FunctionRef<void(uint64_t number, std::span<T> values)> run) {
  const Dims& shape = work.tensor->shape();
  ForEachStretch(work, [&](const Stretch& stretch) {
    Compute<T>(work, stretch, [&](uint64_t src, std::span<T> values) {
      for (size_t i = 0; i < values.size();) {
        const uint64_t number = src + i * stretch.src_stride;
        const uint64_t num =
            NumInRow(number, stretch.src_stride, values.size() - i, shape);
        run(number, values.subspan(i, num));
        i += num;
      }
    });
  });
}

template <typename T>
absl::StatusOr<const LensPass::Region*> LensPass::Get(
    const LensedTensor& tensor, size_t table, const Box& box, ReadTable read) {
  const LensTable& wanted = tensor.tables()[table];
  const Dims& shape = wanted.tensor->shape;
  const Box needed = static_cast<uint64_t>(Volume(shape)) <= kSmallTableElements
                         ? WholeBox(shape)
                         : box;
  regions_.resize(tensor.tables().size());
  std::unique_ptr<const Region>& kept = regions_[table];
  if (kept != nullptr && kept->table == &wanted && kept->box == needed) {
    return kept.get();
  }
  kept.reset();
  const auto num = static_cast<uint64_t>(Volume(needed.sizes));
  if (num > kMaxLensTableBytes / sizeof(T)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a part of the result needs ", num, " elements of ", wanted.name,
        " at once; the maximum is ", kMaxLensTableBytes / sizeof(T)));
  }
  auto region = std::make_unique<Region>();
  region->table = &wanted;
  region->box = needed;
  region->strides = RowMajorStrides(needed.sizes);
  region->bytes.resize(num * sizeof(T));
  if (wanted.tensor->dtype == DType::kUInt8) {
    std::vector<uint8_t> exponents(num);
    DCP_RETURN_IF_ERROR(read(wanted, needed, DType::kUInt8, exponents.data()));
    auto* const scales = reinterpret_cast<T*>(region->bytes.data());
    for (uint64_t i = 0; i < num; ++i) {
      scales[i] = std::ldexp(T{1}, exponents[i] - kExponentBias);
    }
  } else {
    DCP_RETURN_IF_ERROR(
        read(wanted, needed, kComputed<T>, region->bytes.data()));
  }
  kept = std::move(region);
  return kept.get();
}

absl::Status LensPass::Scale(const LensedWindow& work, ReadTable read) {
  const std::optional<Box> bounds = NeededBounds(work);
  if (!bounds.has_value()) return absl::OkStatus();
  const Dims& shape = work.tensor->shape();
  const Dims& block = work.tensor->block();
  Box box = *bounds;  // in scales
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t end = box.offsets[i] + box.sizes[i];
    box.offsets[i] /= block[i];
    box.sizes[i] = (end + block[i] - 1) / block[i] - box.offsets[i];
  }
  DCP_ASSIGN_OR_RETURN(const Region* const scales,
                       Get<float>(*work.tensor, 0, box, read));
  ForEachInRow<float>(work, [&](uint64_t number, std::span<float> values) {
    const Dims index = IndexOfElement(number, shape);
    int64_t at = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
      at += (index[i] / block[i] - scales->box.offsets[i]) * scales->strides[i];
    }
    const float* scale = scales->values<float>() + at;
    int64_t left = block.back() - index.back() % block.back();
    for (float& value : values) {
      value *= *scale;
      if (--left > 0) continue;
      left = block.back();
      ++scale;
    }
  });
  return absl::OkStatus();
}

absl::Status LensPass::Rescale(const LensedWindow& work) {
  const dcp::Rescale& from = work.tensor->rescaled().from;
  const dcp::Rescale& to = work.tensor->rescaled().to;
  ForEachInRow<float>(work, [&](uint64_t /*number*/, std::span<float> values) {
    // Adding zero would turn -0 into 0.
    if (from.add != 0) {
      for (float& value : values) value -= from.add;
    }
    if (from.scale != 1) {
      for (float& value : values) value /= from.scale;
    }
    if (to.scale != 1) {
      for (float& value : values) value *= to.scale;
    }
    if (to.add != 0) {
      for (float& value : values) value += to.add;
    }
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status LensPass::Adapt(const LensedWindow& work, ReadTable read) {
  const std::optional<Box> bounds = NeededBounds(work);
  if (!bounds.has_value()) return absl::OkStatus();
  const LensedTensor& tensor = *work.tensor;
  const int64_t rank = tensor.tables()[0].tensor->shape[0];
  const auto num_columns = static_cast<uint64_t>(tensor.shape()[1]);
  DCP_ASSIGN_OR_RETURN(const Region* const a,
                       Get<T>(tensor, 0,
                              {.offsets = {0, bounds->offsets[1]},
                               .sizes = {rank, bounds->sizes[1]}},
                              read));
  DCP_ASSIGN_OR_RETURN(const Region* const b,
                       Get<T>(tensor, 1,
                              {.offsets = {bounds->offsets[0], 0},
                               .sizes = {bounds->sizes[0], rank}},
                              read));
  std::array<T, kChunkElements> sums;
  // Adds to `values`, adjacent elements in one row.
  const auto add = [&](uint64_t src, std::span<T> values) {
    const auto row = static_cast<int64_t>(src / num_columns);
    const auto column = static_cast<int64_t>(src % num_columns);
    const T* const left = b->values<T>() + (row - b->box.offsets[0]) * rank;
    const T* right = a->values<T>() + (column - a->box.offsets[1]);
    std::fill_n(sums.begin(), values.size(), T{0});
    for (int64_t k = 0; k < rank; ++k, right += a->box.sizes[1]) {
      for (size_t i = 0; i < values.size(); ++i) {
        sums[i] = FusedMultiplyAdd(left[k], right[i], sums[i]);
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += sums[i] * static_cast<T>(tensor.factor());
    }
  };
  ForEachInRow<T>(work, add);
  return absl::OkStatus();
}

// Splits the window into parts small enough to hold the tables' elements.
template <typename T>
absl::Status LensPass::Average(const LensedWindow& work, ReadTable read) {
  const uint64_t most = std::max<uint64_t>(
      kMaxLensTableBytes / sizeof(T) / work.tensor->tables().size(),
      kChunkElements);
  LensedWindow some = work;
  const uint64_t end = work.window.first + work.window.num_elements;
  while (some.window.first < end) {
    some.window.num_elements = std::min(most, end - some.window.first);
    some.window.dst =
        work.window.dst +
        (some.window.first - work.window.first) * work.window.element_bytes;
    DCP_RETURN_IF_ERROR(AverageSome<T>(some, read));
    some.window.first += some.window.num_elements;
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status LensPass::AverageSome(const LensedWindow& work, ReadTable read) {
  const std::optional<Box> bounds = NeededBounds(work);
  if (!bounds.has_value()) return absl::OkStatus();
  const LensedTensor& tensor = *work.tensor;
  const Dims& shape = tensor.shape();
  // The first table's elements are in place, unless `type` has rounded them.
  const bool first_is_there = HoldsExactly(tensor.entry().dtype, work.type);
  std::vector<const Region*> regions(tensor.tables().size());
  for (size_t n = first_is_there ? 1 : 0; n < regions.size(); ++n) {
    if (tensor.divisors()[n] == 0) continue;
    DCP_ASSIGN_OR_RETURN(regions[n], Get<T>(tensor, n, *bounds, read));
  }
  ForEachInRow<T>(work, [&](uint64_t number, std::span<T> values) {
    const Dims index = IndexOfElement(number, shape);
    bool has_begun = first_is_there && tensor.divisors()[0] != 0;
    for (size_t n = 0; n < regions.size(); ++n) {
      if (regions[n] == nullptr) continue;
      const Region& region = *regions[n];
      int64_t at = 0;
      for (size_t i = 0; i < shape.size(); ++i) {
        at += (index[i] - region.box.offsets[i]) * region.strides[i];
      }
      const T* const x = region.template values<T>() + at;
      if (has_begun) {
        AddToMean(static_cast<T>(tensor.divisors()[n]), x, values);
      } else {
        std::copy_n(x, values.size(), values.begin());
        has_begun = true;
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace dcp
