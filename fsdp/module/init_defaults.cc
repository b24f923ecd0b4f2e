// SPDX-License-Identifier: Apache-2.0
// Initialises torch::nn modules by type, as their constructors do.
//
// Tested by tests/fsdp/module/init_test.cc.
#include "fsdp/module/init_defaults.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/engine/parallel_param.h"
#include "fsdp/module/init.h"
#include "torch/nn/modules.h"

namespace fsdp::init {
namespace {

using torch::nn::Module;

// One module, the tensors registered on it, and the parameters' seeds. With
// `dry`, it only notes which tensors would be set.
class Own {
 public:
  Own(std::string prefix, Module& module, uint64_t seed, bool dry)
      : prefix_(std::move(prefix)), module_(module), seed_(seed), dry_(dry) {}

  Module& module() const { return module_; }
  const std::unordered_set<std::string>& covered() const { return covered_; }

  // Does nothing if the module lacks the name, or the tensor is undefined
  // (bias=false).
  void Set(const std::string& name,
           const std::function<void(const Target&, uint64_t seed)>& init) {
    for (const auto* registry :
         {&ParameterRegistry(module_), &BufferRegistry(module_)}) {
      const at::Tensor* found = registry->find(name);
      if (found == nullptr || !found->defined()) continue;
      covered_.insert(name);
      if (!dry_) init(*found, seed_of(seed_, absl::StrCat(prefix_, name)));
    }
  }
  void Constant(const std::string& name, double value) {
    Set(name, [value](const Target& target, uint64_t /*seed*/) {
      constant_(target, value);
    });
  }
  // Uniform around 0.
  void Uniform(const std::string& name, double bound) {
    Set(name, [bound](const Target& target, uint64_t seed) {
      uniform_(target, -bound, bound, seed);
    });
  }
  // The shape of the module's tensor.
  std::vector<int64_t> TensorShape(const std::string& name) const {
    return Target(ParameterRegistry(module_)[name]).shape();
  }

 private:
  const std::string prefix_;
  Module& module_;
  const uint64_t seed_;
  const bool dry_;
  std::unordered_set<std::string> covered_;
};

double FanBound(int64_t fan) {
  return fan > 0 ? 1 / std::sqrt(static_cast<double>(fan)) : 0;
}

// kaiming_uniform with a = sqrt(5) is uniform in +-1/sqrt(fan_in).
void InitByFan(Own& own) {
  const Target weight(ParameterRegistry(own.module())["weight"]);
  const double bound = FanBound(fans_of(weight).fan_in);
  own.Uniform("weight", bound);
  own.Uniform("bias", bound);
}

void InitBilinear(Own& own) {
  const double bound = FanBound(own.TensorShape("weight")[1]);
  own.Uniform("weight", bound);
  own.Uniform("bias", bound);
}

void InitNorm(Own& own) {
  own.Constant("weight", 1);
  own.Constant("bias", 0);
  own.Constant("running_mean", 0);
  own.Constant("running_var", 1);
  own.Constant("num_batches_tracked", 0);
}

void InitEmbedding(Own& own, std::optional<int64_t> padding_idx) {
  own.Set("weight", [padding_idx](const Target& weight, uint64_t seed) {
    const FillFn normal = normal_values(0, 1, seed);
    if (!padding_idx.has_value()) return fill_(weight, normal);
    const int64_t num_rows = weight.shape()[0];
    const int64_t dim = weight.shape()[1];
    const int64_t row = (*padding_idx + num_rows) % num_rows;
    fill_(weight, [&](int64_t first, double* values, int64_t size) {
      normal(first, values, size);
      const int64_t from = std::clamp<int64_t>(row * dim - first, 0, size);
      const int64_t to = std::clamp<int64_t>((row + 1) * dim - first, 0, size);
      std::fill(values + from, values + to, 0);
    });
  });
}

std::optional<int64_t> PaddingRow(const torch::nn::EmbeddingImpl& embedding) {
  if (embedding.options.padding_idx().has_value()) {
    return embedding.options.padding_idx();
  }
  const FsdpParam* param =
      FsdpParam::FindByShard(ParameterRegistry(embedding)["weight"]);
  if (param == nullptr || param->parallel() == nullptr) return std::nullopt;
  return param->parallel()->padding_idx;
}

void InitRecurrent(Own& own, int64_t hidden_size) {
  for (const auto& item : ParameterRegistry(own.module())) {
    own.Uniform(item.key(), FanBound(hidden_size));
  }
}

void InitAttention(Own& own) {
  for (const char* name :
       {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"}) {
    own.Set(name, [](const Target& target, uint64_t seed) {
      xavier_uniform_(target, 1, seed);
    });
  }
  own.Constant("in_proj_bias", 0);
  for (const char* name : {"bias_k", "bias_v"}) {
    own.Set(name, [](const Target& target, uint64_t seed) {
      xavier_normal_(target, 1, seed);
    });
  }
}

template <typename... Impls>
bool IsOneOf(const Module& module) {
  return ((module.as<Impls>() != nullptr) || ...);
}

// How to initialise `module`; empty for a type that is not torch's.
std::function<void(Own&)> ChooseInit(const Module& module) {
  namespace nn = torch::nn;
  if (IsOneOf<nn::LinearImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl,
              nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl,
              nn::ConvTranspose3dImpl>(module)) {
    return InitByFan;
  }
  if (IsOneOf<nn::BilinearImpl>(module)) return InitBilinear;
  if (IsOneOf<nn::LayerNormImpl, nn::GroupNormImpl, nn::BatchNorm1dImpl,
              nn::BatchNorm2dImpl, nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl,
              nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl>(module)) {
    return InitNorm;
  }
  if (const auto* embedding = module.as<nn::EmbeddingImpl>()) {
    return [padding = PaddingRow(*embedding)](Own& own) {
      InitEmbedding(own, padding);
    };
  }
  if (const auto* bag = module.as<nn::EmbeddingBagImpl>()) {
    return [padding = bag->options.padding_idx()](Own& own) {
      InitEmbedding(own, padding);
    };
  }
  if (const auto* rnn = module.as<nn::RNNImpl>()) {
    return [size = rnn->options.hidden_size()](Own& own) {
      InitRecurrent(own, size);
    };
  }
  if (const auto* lstm = module.as<nn::LSTMImpl>()) {
    return [size = lstm->options.hidden_size()](Own& own) {
      InitRecurrent(own, size);
    };
  }
  if (const auto* gru = module.as<nn::GRUImpl>()) {
    return [size = gru->options.hidden_size()](Own& own) {
      InitRecurrent(own, size);
    };
  }
  if (IsOneOf<nn::RNNCellImpl, nn::LSTMCellImpl, nn::GRUCellImpl>(module)) {
    return
        [](Own& own) { InitRecurrent(own, own.TensorShape("weight_hh")[1]); };
  }
  if (IsOneOf<nn::MultiheadAttentionImpl>(module)) return InitAttention;
  if (const auto* prelu = module.as<nn::PReLUImpl>()) {
    return [init = prelu->options.init()](Own& own) {
      own.Constant("weight", init);
    };
  }
  return {};
}

// Initialises the tensors that a module sets in inner modules after they are
// initialised, except for those that the caller initialised.
void InitBelow(Module& module, const std::string& prefix, uint64_t seed,
               const std::unordered_set<const c10::TensorImpl*>& done) {
  if (module.as<torch::nn::MultiheadAttentionImpl>() != nullptr) {
    const at::Tensor* bias =
        ParameterRegistry(*ChildRegistry(module)["out_proj"]).find("bias");
    if (bias != nullptr && bias->defined() &&
        done.count(bias->unsafeGetTensorImpl()) == 0) {
      zeros_(*bias);
    }
  }
  if (module.as<torch::nn::TransformerImpl>() == nullptr) return;
  for (const auto& item : module.named_parameters()) {
    const Target parameter(item.value());
    if (parameter.shape().size() < 2 ||
        done.count(item.value().unsafeGetTensorImpl()) != 0) {
      continue;
    }
    xavier_uniform_(parameter, 1,
                    seed_of(seed, absl::StrCat(prefix, item.key())));
  }
}

// The first name that `own` has and `covered` lacks; empty when there is none.
std::string FirstUncovered(const Module& own,
                           const std::unordered_set<std::string>& covered) {
  for (const auto* registry : {&ParameterRegistry(own), &BufferRegistry(own)}) {
    for (const auto& item : *registry) {
      if (item.value().defined() && covered.count(item.key()) == 0) {
        return item.key();
      }
    }
  }
  return "";
}

struct Step {
  std::string prefix;
  Module* module;
  std::function<void(Own&)> init;  // empty: nothing to initialise
};

// Throws when default_ cannot initialise `module`.
Step PlanStep(const std::string& name, Module& module, uint64_t seed) {
  Step step{name.empty() ? "" : absl::StrCat(name, "."), &module,
            ChooseInit(module)};
  Own own(step.prefix, module, seed, /*dry=*/true);
  if (step.init) step.init(own);
  const std::string unknown = FirstUncovered(module, own.covered());
  TORCH_CHECK_NOT_IMPLEMENTED(
      unknown.empty(), "init::default_: '", name, "', a ", type_name(module),
      ", has '", unknown,
      "' of its own, whose first values only its author knows; initialise the "
      "module in `custom`");
  return step;
}

}  // namespace

void default_(Module& module, uint64_t seed, const ModuleInit& custom) {
  std::vector<Step> steps;
  std::unordered_set<const Module*> seen;
  std::unordered_set<const c10::TensorImpl*> done;
  const auto plan = [&](const std::string& name, Module& own) {
    if (!seen.insert(&own).second) return;
    if (!custom || !custom(name, own, seed)) {
      steps.push_back(PlanStep(name, own, seed));
      return;
    }
    for (const auto& item : ParameterRegistry(own)) {
      done.insert(item.value().unsafeGetTensorImpl());
    }
  };
  plan("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    plan(item.key(), *item.value());
  }
  for (const Step& step : steps) {
    if (!step.init) continue;
    Own own(step.prefix, *step.module, seed, /*dry=*/false);
    step.init(own);
  }
  // Outer after inner, as constructors run.
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    InitBelow(*step->module, step->prefix, seed, done);
  }
}

}  // namespace fsdp::init
