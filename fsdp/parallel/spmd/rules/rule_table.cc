// SPDX-License-Identifier: Apache-2.0
// Which operators follow which rule. For an operator that is not listed, the
// arguments are gathered.
//
// Tested by tests/fsdp/parallel/spmd/rules/rules_test.cc.

#include <initializer_list>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "fsdp/parallel/spmd/rules/rules.h"

namespace fsdp::spmd {
namespace {

struct Family {
  Rule rule;
  std::initializer_list<const char*> names;
};

const Family kFamilies[] = {
    // Elements.
    {ElementwiseRule,
     {"abs",         "absolute",    "acos",        "acosh",      "addcdiv",
      "addcmul",     "asin",        "asinh",       "atan",       "atan2",
      "atanh",       "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
      "ceil",        "celu",        "clamp",       "clamp_max",  "clamp_min",
      "clip",        "copy",        "cos",         "cosh",       "elu",
      "eq",          "erf",         "erfc",        "exp",        "exp2",
      "expm1",       "fill",        "float_power", "floor",      "floor_divide",
      "fmax",        "fmin",        "fmod",        "frac",       "ge",
      "gelu",        "gt",          "hardsigmoid", "hardswish",  "hardtanh",
      "heaviside",   "hypot",       "isfinite",    "isinf",      "isnan",
      "le",          "leaky_relu",  "lerp",        "log",        "log10",
      "log1p",       "log2",        "log_sigmoid", "logaddexp",  "logical_and",
      "logical_not", "logical_or",  "logical_xor", "logit",      "lt",
      "masked_fill", "maximum",     "minimum",     "mish",       "nan_to_num",
      "ne",          "pow",         "reciprocal",  "relu",       "relu6",
      "remainder",   "round",       "rsqrt",       "selu",       "sgn",
      "sigmoid",     "sign",        "silu",        "sin",        "sinh",
      "softplus",    "sqrt",        "square",      "tan",        "tanh",
      "threshold",   "trunc",       "xlogy"}},
    {LinearElementwiseRule,
     {"alias", "clone", "contiguous", "detach", "neg", "negative", "positive",
      "zero"}},
    {AdditionRule, {"add", "sub", "subtract", "rsub"}},
    {ScalingRule, {"mul", "multiply", "div", "divide", "true_divide"}},
    {WhereRule, {"where"}},
    {CastRule, {"to", "type_as"}},
    // Products.
    {MatmulRule, {"matmul", "mm", "bmm"}},
    {AddmmRule, {"addmm"}},
    {AddedProductRule, {"baddbmm"}},
    {LinearRule, {"linear"}},
    {VectorProductRule, {"mv", "dot"}},
    // Views.
    {PermuteRule,
     {"t", "transpose", "permute", "numpy_T", "mT", "swapaxes", "swapdims",
      "movedim"}},
    {UnsqueezeRule, {"unsqueeze"}},
    {SqueezeRule, {"squeeze"}},
    {ReshapeRule,
     {"view", "reshape", "flatten", "unflatten", "_unsafe_view", "view_as",
      "reshape_as"}},
    {ExpandRule, {"expand"}},
    {RepeatRule, {"repeat"}},
    {RepeatInterleaveRule, {"repeat_interleave"}},
    {TriangleRule, {"tril", "triu"}},
    // Along dimensions that are not cut.
    {LinearAlongDimsRule,
     {"chunk", "cumsum", "flip", "narrow", "roll", "select", "slice", "split",
      "split_with_sizes", "unbind", "unsafe_chunk", "unsafe_split"}},
    {AlongDimsRule, {"all",           "amax",
                     "amin",          "aminmax",
                     "any",           "argmax",
                     "argmin",        "argsort",
                     "count_nonzero", "cummax",
                     "cummin",        "cumprod",
                     "glu",           "linalg_vector_norm",
                     "log_softmax",   "logcumsumexp",
                     "logsumexp",     "kthvalue",
                     "median",        "nansum",
                     "norm",          "prod",
                     "softmax",       "sort",
                     "std",           "topk",
                     "var",           "var_mean"}},
    {MaximumRule, {"max", "min"}},
    {SumRule, {"sum", "mean"}},
    // Indices, and joining.
    {IndexSelectRule, {"index_select"}},
    {IndexRule, {"index"}},
    {GatherRule, {"gather"}},
    {JoinRule, {"cat", "concat", "concatenate", "stack"}},
    // Layers.
    {NormRule, {"layer_norm", "rms_norm"}},
    {GroupNormRule, {"group_norm"}},
    {EmbeddingRule, {"embedding"}},
    {AttentionRule, {"scaled_dot_product_attention"}},
    // Losses.
    {CrossEntropyRule, {"cross_entropy_loss"}},
    {NegativeLogLikelihoodRule, {"nll_loss", "nll_loss_nd"}},
    {ElementwiseLossRule,
     {"binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss",
      "kl_div", "l1_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss",
      "soft_margin_loss"}},
    // Random numbers, and new tensors.
    {DropoutRule, {"dropout"}},
    {RandomRule,
     {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_",
      "normal_", "random_", "uniform_"}},
    {RandomLikeRule, {"rand_like", "randint_like", "randn_like"}},
    {LikeRule, {"empty_like", "full_like", "ones_like", "zeros_like"}},
    {NewRule,
     {"new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"}},
    {ItemRule, {"item", "is_nonzero", "_local_scalar_dense"}},
    // Operators that PyTorch composes from the above.
    {ComposedRule,
     {"adjoint", "broadcast_to", "einsum", "expand_as", "hstack", "inner",
      "kron", "matrix_H", "moveaxis", "outer", "tensordot", "tile", "vstack"}},
};

}  // namespace

Rule LookUpRule(const std::string& name) {
  static const auto* rules = [] {
    auto* all = new std::unordered_map<std::string, Rule>;
    for (const Family& family : kFamilies) {
      for (const char* op : family.names) {
        (*all)[absl::StrCat("aten::", op)] = family.rule;
        // In place.
        (*all)[absl::StrCat("aten::", op, "_")] = family.rule;
      }
    }
    return all;
  }();
  const auto found = rules->find(name);
  return found == rules->end() ? nullptr : found->second;
}

}  // namespace fsdp::spmd
