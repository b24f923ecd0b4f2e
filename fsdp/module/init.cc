// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/init.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <unordered_set>
#include <utility>

#include "ATen/Parallel.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "c10/core/impl/LocalDispatchKeySet.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/lazy/shard_use.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/fully_shard.h"

namespace fsdp::init {
namespace {

// Values are made in double and rounded to the parameter's dtype, so that every
// dtype gets the same model. They are made in pieces, so that no whole shard is
// held in double.
constexpr int64_t kPieceElements = int64_t{1} << 20;
constexpr int64_t kElementsPerThread = int64_t{1} << 12;
constexpr double kTwoPi = 6.283185307179586476925;
// How many standard deviations away a double can no longer represent the
// probability.
constexpr double kTail = 37;

// ---- Random numbers --------------------------------------------------------
// SplitMix64 with direct access to any element: state = key + (i + 1) * c.

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t BitsAt(uint64_t key, int64_t index) {
  return Mix(key + (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15ULL);
}

// In [0, 1), a multiple of 2^-53.
double UnitAt(uint64_t key, int64_t index) {
  return static_cast<double>(BitsAt(key, index) >> 11) * 0x1p-53;
}

// The Box-Muller transform: elements 2k and 2k + 1 are one pair.
double NormalAt(uint64_t key, int64_t index) {
  const int64_t even = index - index % 2;
  const double radius = std::sqrt(-2 * std::log(1 - UnitAt(key, even)));
  const double angle = kTwoPi * UnitAt(key, even + 1);
  return radius * (index == even ? std::cos(angle) : std::sin(angle));
}

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// The inverse of NormalCdf, for p up to 1/2: Acklam's rational approximation
// (relative error below 1.2e-9), refined by one step of Halley's method.
double LowerQuantile(double p) {
  if (p < 1e-300) return -kTail;
  double x = 0;
  if (p < 0.02425) {
    const double q = std::sqrt(-2 * std::log(p));
    x = (((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q -
            2.400758277161838) *
               q -
           2.549732539343734) *
              q +
          4.374664141464968) *
             q +
         2.938163982698783) /
        ((((7.784695709041462e-03 * q + 3.224671290700398e-01) * q +
           2.445134137142996) *
              q +
          3.754408661907416) *
             q +
         1);
  } else {
    const double q = p - 0.5;
    const double r = q * q;
    x = (((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r -
            2.759285104469687e+02) *
               r +
           1.383577518672690e+02) *
              r -
          3.066479806614716e+01) *
             r +
         2.506628277459239) *
        q /
        (((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r -
            1.556989798598866e+02) *
               r +
           6.680131188771972e+01) *
              r -
          1.328068155288572e+01) *
             r +
         1);
  }
  const double u = (NormalCdf(x) - p) * std::sqrt(kTwoPi) * std::exp(x * x / 2);
  return x - u / (1 + x * u / 2);
}

double NormalQuantile(double p) {
  return p <= 0.5 ? LowerQuantile(p) : -LowerQuantile(1 - p);
}

// ---- Places ----------------------------------------------------------------

// A box in the whole tensor as rows of consecutive elements.
class Rows {
 public:
  Rows(const std::vector<int64_t>& shape, const dcp::Box& box) : box_(box) {
    // A row covers the trailing whole dimensions and one more.
    outer_ = static_cast<int64_t>(shape.size());
    while (outer_ > 0) {
      --outer_;
      row_size_ *= box.sizes[outer_];
      if (box.sizes[outer_] != shape[outer_]) break;
    }
    for (size_t d = shape.size(); d-- > 0;) {
      strides_.insert(strides_.begin(), stride_);
      stride_ *= shape[d];
    }
  }

  int64_t row_size() const { return row_size_; }
  // The whole tensor's index for element `position` in the box, in row-major
  // order.
  int64_t WholeIndex(int64_t position) const {
    int64_t row = position / row_size_;
    int64_t index = position % row_size_;
    for (size_t d = box_.offsets.size(); d-- > 0;) {
      index += box_.offsets[d] * strides_[d];
      if (static_cast<int64_t>(d) >= outer_) continue;
      index += row % box_.sizes[d] * strides_[d];
      row /= box_.sizes[d];
    }
    return index;
  }

 private:
  const dcp::Box& box_;
  int64_t outer_ = 0;
  int64_t row_size_ = 1;
  int64_t stride_ = 1;
  std::vector<int64_t> strides_;
};

void FillBox(const at::Tensor& view, const std::vector<int64_t>& shape,
             const dcp::Box& box, const FillFn& fill) {
  if (view.numel() == 0) return;
  const Rows rows(shape, box);
  const int64_t num_rows = view.dim() == 0 ? 1 : view.size(0);
  const int64_t per_row = view.numel() / num_rows;
  const int64_t step = std::max<int64_t>(1, kPieceElements / per_row);
  for (int64_t row = 0; row < num_rows; row += step) {
    const at::Tensor part =
        view.dim() == 0 ? view
                        : view.narrow(0, row, std::min(step, num_rows - row));
    const at::Tensor piece = at::empty(part.sizes(), at::kDouble);
    double* const values = piece.mutable_data_ptr<double>();
    const int64_t before = row * per_row;
    at::parallel_for(
        0, piece.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
          while (begin < end) {
            const int64_t left =
                rows.row_size() - (before + begin) % rows.row_size();
            const int64_t size = std::min(left, end - begin);
            fill(rows.WholeIndex(before + begin), values + begin, size);
            begin += size;
          }
        });
    part.copy_(piece);
  }
}

// The dimension along which a strided shard's boxes follow one another.
int64_t DimThatDiffers(const std::vector<dcp::Box>& boxes) {
  for (size_t d = 0; d < boxes[0].offsets.size(); ++d) {
    if (boxes[0].offsets[d] != boxes[1].offsets[d]) {
      return static_cast<int64_t>(d);
    }
  }
  return 0;
}

// Fills element by element with `at`.
template <typename At>
void FillEach(const Target& target, const At& at) {
  fill_(target, [&at](int64_t first, double* values, int64_t size) {
    for (int64_t i = 0; i < size; ++i) values[i] = at(first + i);
  });
}

}  // namespace

// ---- Targets ---------------------------------------------------------------

Target::Target(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "init: the parameter is undefined");
  if (const std::optional<DTensor> sharded = dtensor_of(tensor)) {
    *this = Target(*sharded);
    return;
  }
  local_ = tensor;
  shape_ = tensor.sizes().vec();
  boxes_ = {dcp::WholeBox(shape_)};
}

Target::Target(const DTensor& tensor)
    : local_(tensor.to_local()),
      shape_(tensor.shape()),
      boxes_(tensor.spec().local_boxes()) {}

void fill_(const Target& target, const FillFn& fill) {
  TORCH_CHECK_VALUE(fill != nullptr, "init: the function is empty");
  TORCH_CHECK_VALUE(
      !target.local().is_meta(), "init: a parameter of shape ",
      at::IntArrayRef(target.shape()),
      " is on the meta device; call fsdp::to_empty(module, device) first");
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_gather(kLazyKey);
  NoteShardWrite(target.local());
  const std::vector<dcp::Box>& boxes = target.boxes();
  if (boxes.size() == 1) {
    FillBox(target.local(), target.shape(), boxes[0], fill);
    return;
  }
  if (boxes.empty()) return;
  const int64_t dim = DimThatDiffers(boxes);
  int64_t begin = 0;
  for (const dcp::Box& box : boxes) {
    FillBox(target.local().narrow(dim, begin, box.sizes[dim]), target.shape(),
            box, fill);
    begin += box.sizes[dim];
  }
}

// ---- Distributions ---------------------------------------------------------

void constant_(const Target& target, double value) {
  FillEach(target, [value](int64_t /*index*/) { return value; });
}
void zeros_(const Target& target) { constant_(target, 0); }
void ones_(const Target& target) { constant_(target, 1); }

void uniform_(const Target& target, double low, double high, uint64_t seed) {
  TORCH_CHECK_VALUE(low <= high && std::isfinite(high - low),
                    "init::uniform_: [", low, ", ", high,
                    ") is not a range to draw from");
  FillEach(target, [=](int64_t index) {
    return low + (high - low) * UnitAt(seed, index);
  });
}

FillFn normal_values(double mean, double std, uint64_t seed) {
  TORCH_CHECK_VALUE(std >= 0, "init::normal_: std is ", std,
                    ", but must not be negative");
  return [=](int64_t first, double* values, int64_t size) {
    for (int64_t i = 0; i < size; ++i) {
      values[i] = mean + std * NormalAt(seed, first + i);
    }
  };
}

void normal_(const Target& target, double mean, double std, uint64_t seed) {
  fill_(target, normal_values(mean, std, seed));
}

void trunc_normal_(const Target& target, double mean, double std, double low,
                   double high, uint64_t seed) {
  TORCH_CHECK_VALUE(std > 0, "init::trunc_normal_: std is ", std,
                    ", but must be positive");
  TORCH_CHECK_VALUE(low < high, "init::trunc_normal_: low is ", low,
                    ", not below high, ", high);
  // Draws the upper tail as the lower one, because doubles are dense there.
  const bool mirrored = low > mean;
  const double sign = mirrored ? -1 : 1;
  const double from =
      std::max(sign * ((mirrored ? high : low) - mean) / std, -kTail);
  const double to =
      std::min(sign * ((mirrored ? low : high) - mean) / std, kTail);
  TORCH_CHECK_VALUE(from < to, "init::trunc_normal_: [", low, ", ", high,
                    "] is too far from mean ", mean, " at std ", std);
  const double p_from = NormalCdf(from);
  const double p_to = NormalCdf(to);
  FillEach(target, [=](int64_t index) {
    const double p = p_from + (p_to - p_from) * UnitAt(seed, index);
    const double z = sign * std::clamp(NormalQuantile(p), from, to);
    return std::clamp(mean + std * z, low, high);
  });
}

Fans fans_of(const Target& target) {
  const std::vector<int64_t>& shape = target.shape();
  TORCH_CHECK_VALUE(shape.size() >= 2,
                    "init: fans need at least 2 dimensions, but the shape is ",
                    at::IntArrayRef(shape));
  int64_t receptive_field = 1;
  for (size_t d = 2; d < shape.size(); ++d) receptive_field *= shape[d];
  return {.fan_in = shape[1] * receptive_field,
          .fan_out = shape[0] * receptive_field};
}

namespace {

double KaimingStd(const Target& target, double gain) {
  const int64_t fan = std::max<int64_t>(1, fans_of(target).fan_in);
  return gain / std::sqrt(static_cast<double>(fan));
}
double XavierStd(const Target& target, double gain) {
  const Fans fans = fans_of(target);
  const int64_t fan = std::max<int64_t>(1, fans.fan_in + fans.fan_out);
  return gain * std::sqrt(2.0 / static_cast<double>(fan));
}
void FillUniformWithStd(const Target& target, double std, uint64_t seed) {
  const double bound = std::sqrt(3.0) * std;
  uniform_(target, -bound, bound, seed);
}

}  // namespace

void kaiming_uniform_(const Target& target, double gain, uint64_t seed) {
  FillUniformWithStd(target, KaimingStd(target, gain), seed);
}
void kaiming_normal_(const Target& target, double gain, uint64_t seed) {
  normal_(target, 0, KaimingStd(target, gain), seed);
}
void xavier_uniform_(const Target& target, double gain, uint64_t seed) {
  FillUniformWithStd(target, XavierStd(target, gain), seed);
}
void xavier_normal_(const Target& target, double gain, uint64_t seed) {
  normal_(target, 0, XavierStd(target, gain), seed);
}

// ---- Models ----------------------------------------------------------------

uint64_t seed_of(uint64_t seed, const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a: the same on every machine
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return Mix(Mix(seed + 0x9e3779b97f4a7c15ULL) ^ hash);
}

void init_parameters(
    torch::nn::Module& module,
    const std::function<void(const std::string& name, const Target& parameter,
                             uint64_t seed)>& fn,
    uint64_t seed) {
  TORCH_CHECK_VALUE(fn != nullptr, "init_parameters: the function is empty");
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    fn(item.key(), Target(item.value()), seed_of(seed, item.key()));
  }
}

}  // namespace fsdp::init
