// SPDX-License-Identifier: Apache-2.0
// VisitTensors: calls a function on every tensor in a forward's arguments or
// result: a Tensor, optionals, vectors, arrays, pairs and tuples of them, and
// torch's AnyValue. Other values are skipped. Pure; any thread.
#ifndef FSDP_ENGINE_VISIT_TENSORS_H_
#define FSDP_ENGINE_VISIT_TENSORS_H_

#include <array>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/nn/modules/container/any_value.h"

namespace fsdp {

namespace internal {

template <typename T>
struct IsSequence : std::false_type {};
template <typename T>
struct IsSequence<std::vector<T>> : std::true_type {};
template <>
struct IsSequence<std::vector<bool>> : std::false_type {};
template <typename T, size_t kSize>
struct IsSequence<std::array<T, kSize>> : std::true_type {};

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <typename T>
struct IsTuple : std::false_type {};
template <typename... Ts>
struct IsTuple<std::tuple<Ts...>> : std::true_type {};
template <typename T, typename U>
struct IsTuple<std::pair<T, U>> : std::true_type {};

}  // namespace internal

// Calls `visit(at::Tensor&)`, which may assign, in the order of the values, for
// undefined tensors too.
template <typename T, typename Visit>
void VisitTensors(T& value, Visit&& visit) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (std::is_same_v<T, torch::nn::AnyValue>) {
    if (auto* tensor = value.template try_get<at::Tensor>()) visit(*tensor);
  } else if constexpr (internal::IsOptional<T>::value) {
    if (value.has_value()) VisitTensors(*value, visit);
  } else if constexpr (internal::IsSequence<T>::value) {
    for (auto& element : value) VisitTensors(element, visit);
  } else if constexpr (internal::IsTuple<T>::value) {
    std::apply(
        [&visit](auto&... element) { (VisitTensors(element, visit), ...); },
        value);
  }
}

}  // namespace fsdp

#endif  // FSDP_ENGINE_VISIT_TENSORS_H_
