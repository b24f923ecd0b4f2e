// SPDX-License-Identifier: Apache-2.0
// The simulated device's operators that compute nothing: copies, and operators
// that make tensors and views.
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/EmptyTensor.h"
#include "ATen/native/Resize.h"
#include "ATen/native/transformers/attention.h"
#include "ATen/native/transformers/sdp_utils_cpp.h"
#include "ATen/ops/_reshape_alias_native.h"
#include "ATen/ops/as_strided_native.h"
#include "ATen/ops/is_set_to_native.h"
#include "ATen/ops/resize_native.h"
#include "ATen/ops/set_native.h"
#include "ATen/ops/unfold_native.h"
#include "ATen/ops/view_as_complex_native.h"
#include "ATen/ops/view_as_real_native.h"
#include "ATen/ops/view_native.h"
#include "c10/core/DeviceGuard.h"
#include "tests/testing/sim_device/alias.h"
#include "tests/testing/sim_device/cost_model.h"
#include "tests/testing/sim_device/options.h"
#include "tests/testing/sim_device/simulation.h"
#include "torch/library.h"

namespace sim {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

c10::Device DeviceFor(std::optional<c10::Device> device) {
  return device.has_value() && device->has_index()
             ? *device
             : c10::Device(kType, CurrentDevice());
}

// --- Tensors and views -----------------------------------------------------

at::Tensor Empty(c10::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> /*layout*/,
                 std::optional<c10::Device> device,
                 std::optional<bool> /*pin_memory*/,
                 std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(DeviceFor(device));
  return at::detail::empty_generic(sizes, c10::GetAllocator(kType), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        std::optional<c10::ScalarType> dtype,
                        std::optional<c10::Layout> /*layout*/,
                        std::optional<c10::Device> device,
                        std::optional<bool> /*pin_memory*/) {
  const c10::DeviceGuard guard(DeviceFor(device));
  return at::detail::empty_strided_generic(sizes, strides,
                                           c10::GetAllocator(kType), kKeys,
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& Resize(const at::Tensor& self, c10::IntArrayRef sizes,
                         std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  // A storage that grows is copied, here by the host.
  if (self.sizes() != sizes && self.storage().nbytes() != 0) {
    Simulation::Get().Finish(CurrentStream(self.device().index()));
  }
  return at::native::resize_(self, sizes, format);
}

at::Tensor& SetStorage(at::Tensor& self, at::Storage source) {
  const int64_t numel =
      static_cast<int64_t>(source.nbytes() / self.element_size());
  return self.set_(std::move(source), 0, {numel}, {});
}

at::Tensor& SetView(at::Tensor& self, at::Storage storage, int64_t offset,
                    c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::native::set_storage_meta__symint(
      self, std::move(storage), offset, c10::fromIntArrayRefSlow(sizes),
      c10::fromIntArrayRefSlow(strides));
}

at::Tensor& SetTensor(at::Tensor& self, const at::Tensor& source) {
  return self.set_(source.storage(), source.storage_offset(), source.sizes(),
                   source.strides());
}

void RecordStream(at::Tensor& self, c10::Stream stream) {
  if (self.storage().data() == nullptr) return;
  Simulation::Get().RecordUse(self.storage().data(), stream);
}

at::Scalar LocalScalar(const at::Tensor& self) {
  const c10::Stream stream = CurrentStream(self.device().index());
  Simulation::Get().Issue(stream, "aten::item", {Reads(self)}, [] {});
  Simulation::Get().Synchronize(stream, "aten::item");
  return Alias(self).OnCpu().item();
}

// --- Copies ----------------------------------------------------------------

void IssueCopy(c10::Stream stream, const char* name, const at::Tensor& dst,
               const at::Tensor& src) {
  const std::vector<Access> accesses{Reads(src), Writes(dst)};
  Simulation::Get().Issue(
      stream, name, accesses,
      [to = Alias(dst), from = Alias(src)] {
        const KernelScope scope;
        to.OnCpu().copy_(from.OnCpu());
      },
      CopyMicros(accesses, /*is_local=*/dst.device() == src.device()));
}

// As CUDA does: on the source's stream, which waits for the destination's.
void CopyBetweenDevices(const at::Tensor& dst, const at::Tensor& src) {
  Simulation& simulation = Simulation::Get();
  const c10::Stream there = CurrentStream(dst.device().index());
  const c10::Stream here = CurrentStream(src.device().index());
  Simulation::Event ready;
  simulation.Record(ready, there);
  simulation.MakeWait(here, ready);
  IssueCopy(here, "copy between devices", dst, src);
  Simulation::Event done;
  simulation.Record(done, here);
  simulation.MakeWait(there, done);
}

void CopyFromHost(const at::Tensor& dst, const at::Tensor& src,
                  bool non_blocking) {
  Simulation& simulation = Simulation::Get();
  const c10::Stream stream = CurrentStream(dst.device().index());
  // With another layout or dtype, it goes through a tensor in pageable memory.
  if (simulation.IsPinned(src.const_data_ptr()) && src.is_contiguous() &&
      src.scalar_type() == dst.scalar_type()) {
    simulation.RecordUse(src.const_data_ptr(), stream);
    IssueCopy(stream, "copy from pinned memory", dst, src);
    if (!non_blocking) simulation.Synchronize(stream, "copy from host");
    return;
  }
  // Pageable memory is read before the call returns.
  const KernelScope scope;
  simulation.Issue(stream, "copy from host", {Writes(dst)},
                   [to = Alias(dst), from = src.clone()] {
                     const KernelScope inner;
                     to.OnCpu().copy_(from);
                   });
  if (non_blocking) {
    // The driver may wait for the stream, so nothing is known to be ordered.
    simulation.CountHostWait("copy from pageable memory");
  } else {
    simulation.Synchronize(stream, "copy from host");
  }
}

void CopyToHost(const at::Tensor& dst, const at::Tensor& src,
                bool non_blocking) {
  Simulation& simulation = Simulation::Get();
  const c10::Stream stream = CurrentStream(src.device().index());
  if (non_blocking && simulation.IsPinned(dst.const_data_ptr()) &&
      dst.is_contiguous() && dst.scalar_type() == src.scalar_type()) {
    simulation.RecordUse(dst.const_data_ptr(), stream);
    // If the host reads too early, the data is not there yet.
    if (options().poison) {
      std::memset(dst.mutable_data_ptr(), 0xff, dst.nbytes());
    }
    IssueCopy(stream, "copy to pinned memory", dst, src);
    return;
  }
  simulation.Issue(stream, "copy to host", {Reads(src)}, [] {});
  simulation.Synchronize(
      stream, non_blocking ? "copy to pageable memory" : "copy to host");
  const KernelScope scope;
  at::Tensor to = dst;
  to.copy_(Alias(src).OnCpu());
}

at::Tensor& Copy(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.numel() == 0 || self.is_same(src)) return self;
  const at::Tensor from = src.expand(self.sizes());
  if (!IsOurs(src)) {
    CopyFromHost(self, from, non_blocking);
  } else if (!IsOurs(self)) {
    CopyToHost(self, from, non_blocking);
  } else if (self.device() != src.device()) {
    CopyBetweenDevices(self, from);
  } else {
    IssueCopy(CurrentStream(self.device().index()), "aten::copy_", self, from);
  }
  return self;
}

int64_t MathAttention(const at::Tensor& /*query*/, const at::Tensor& /*key*/,
                      const at::Tensor& /*value*/,
                      const std::optional<at::Tensor>& /*mask*/,
                      double /*dropout*/, bool /*is_causal*/,
                      std::optional<double> /*scale*/, bool /*enable_gqa*/) {
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  if (!options().enabled) return;
  library.impl("empty.memory_format", TORCH_FN(Empty));
  library.impl("empty_strided", TORCH_FN(EmptyStrided));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  library.impl("resize_", TORCH_FN(Resize));
  library.impl("set_.source_Storage", TORCH_FN(SetStorage));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(SetView));
  library.impl("set_.source_Tensor", TORCH_FN(SetTensor));
  library.impl("record_stream", TORCH_FN(RecordStream));
  library.impl("copy_", TORCH_FN(Copy));
  library.impl("_local_scalar_dense", TORCH_FN(LocalScalar));
  library.impl("_fused_sdp_choice", TORCH_FN(MathAttention));
}

}  // namespace sim

namespace at::native {
// Fused attention has no kernel here.
REGISTER_CUDA_DISPATCH(_fused_sdp_choice_stub, &sim::MathAttention)
}  // namespace at::native
