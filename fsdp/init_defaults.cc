// default_: what the modules of torch::nn draw in their constructors, by type.
#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "fsdp/init.h"
#include "fsdp/module_access.h"
#include "torch/nn/modules.h"

namespace fsdp::init {
namespace {

using torch::nn::Module;

// One module, with what is registered on it, and the seeds of its parameters.
class Own {
 public:
  Own(std::string prefix, Module& module, uint64_t seed)
      : prefix_(std::move(prefix)), module_(module), seed_(seed) {}

  Module& module() const { return module_; }
  // Null when it has none of that name (or an undefined one: bias=false).
  const at::Tensor* Find(const std::string& name) const {
    for (const auto* registry : {&ParametersOf(module_), &BuffersOf(module_)}) {
      const at::Tensor* found = registry->find(name);
      if (found != nullptr && found->defined()) return found;
    }
    return nullptr;
  }
  uint64_t SeedOf(const std::string& name) const {
    return seed_of(seed_, absl::StrCat(prefix_, name));
  }
  void Constant(const std::string& name, double value) const {
    if (const at::Tensor* tensor = Find(name)) constant_(*tensor, value);
  }
  // Uniform around 0.
  void Uniform(const std::string& name, double bound) const {
    if (const at::Tensor* tensor = Find(name)) {
      uniform_(*tensor, -bound, bound, SeedOf(name));
    }
  }
  void XavierUniform(const std::string& name) const {
    if (const at::Tensor* tensor = Find(name)) {
      xavier_uniform_(*tensor, 1, SeedOf(name));
    }
  }

 private:
  const std::string prefix_;
  Module& module_;
  const uint64_t seed_;
};

double BoundOfFan(int64_t fan) {
  return fan > 0 ? 1 / std::sqrt(static_cast<double>(fan)) : 0;
}

// kaiming_uniform of a = sqrt(5) is uniform in +-1/sqrt(fan_in).
void InitByFan(const Own& own) {
  const double bound = BoundOfFan(fans_of(Target(*own.Find("weight"))).fan_in);
  own.Uniform("weight", bound);
  own.Uniform("bias", bound);
}

void InitBilinear(const Own& own) {
  const double bound = BoundOfFan(Target(*own.Find("weight")).shape()[1]);
  own.Uniform("weight", bound);
  own.Uniform("bias", bound);
}

void InitNorm(const Own& own) {
  own.Constant("weight", 1);
  own.Constant("bias", 0);
  own.Constant("running_mean", 0);
  own.Constant("running_var", 1);
  own.Constant("num_batches_tracked", 0);
}

void InitEmbedding(const Own& own, std::optional<int64_t> padding_idx) {
  const Target weight(*own.Find("weight"));
  const FillFn normal = normal_values(0, 1, own.SeedOf("weight"));
  if (!padding_idx.has_value()) return fill_(weight, normal);
  const int64_t num_rows = weight.shape()[0];
  const int64_t dim = weight.shape()[1];
  const int64_t row = *padding_idx < 0 ? *padding_idx + num_rows : *padding_idx;
  fill_(weight, [&](int64_t first, double* values, int64_t size) {
    normal(first, values, size);
    const int64_t from = std::clamp<int64_t>(row * dim - first, 0, size);
    const int64_t to = std::clamp<int64_t>((row + 1) * dim - first, 0, size);
    std::fill(values + from, values + to, 0);
  });
}

void InitRecurrent(const Own& own, int64_t hidden_size) {
  for (const auto& item : ParametersOf(own.module())) {
    own.Uniform(item.key(), BoundOfFan(hidden_size));
  }
}

void InitAttention(const Own& own) {
  for (const char* name :
       {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"}) {
    own.XavierUniform(name);
  }
  own.Constant("in_proj_bias", 0);
  for (const char* name : {"bias_k", "bias_v"}) {
    if (const at::Tensor* tensor = own.Find(name)) {
      xavier_normal_(*tensor, 1, own.SeedOf(name));
    }
  }
}

template <typename... Impls>
bool IsOneOf(const Module& module) {
  return ((module.as<Impls>() != nullptr) || ...);
}

// How to initialise it; empty for a type that is not torch's.
std::function<void(const Own&)> InitOf(const Module& module) {
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
    return [padding = embedding->options.padding_idx()](const Own& own) {
      InitEmbedding(own, padding);
    };
  }
  if (const auto* bag = module.as<nn::EmbeddingBagImpl>()) {
    return [padding = bag->options.padding_idx()](const Own& own) {
      InitEmbedding(own, padding);
    };
  }
  if (const auto* rnn = module.as<nn::RNNImpl>()) {
    return [size = rnn->options.hidden_size()](const Own& own) {
      InitRecurrent(own, size);
    };
  }
  if (const auto* lstm = module.as<nn::LSTMImpl>()) {
    return [size = lstm->options.hidden_size()](const Own& own) {
      InitRecurrent(own, size);
    };
  }
  if (const auto* gru = module.as<nn::GRUImpl>()) {
    return [size = gru->options.hidden_size()](const Own& own) {
      InitRecurrent(own, size);
    };
  }
  if (IsOneOf<nn::RNNCellImpl, nn::LSTMCellImpl, nn::GRUCellImpl>(module)) {
    return [](const Own& own) {
      InitRecurrent(own, Target(*own.Find("weight_hh")).shape()[1]);
    };
  }
  if (IsOneOf<nn::MultiheadAttentionImpl>(module)) return InitAttention;
  if (const auto* prelu = module.as<nn::PReLUImpl>()) {
    return [init = prelu->options.init()](const Own& own) {
      own.Constant("weight", init);
    };
  }
  return {};
}

// What a module does to those inside it, after they are done.
void InitBelow(Module& module, const std::string& prefix, uint64_t seed) {
  if (module.as<torch::nn::MultiheadAttentionImpl>() != nullptr) {
    if (const at::Tensor* bias =
            ParametersOf(*ChildrenOf(module)["out_proj"]).find("bias")) {
      if (bias->defined()) zeros_(*bias);
    }
  }
  if (module.as<torch::nn::TransformerImpl>() == nullptr) return;
  for (const auto& item : module.named_parameters()) {
    const Target parameter(item.value());
    if (parameter.shape().size() < 2) continue;
    xavier_uniform_(parameter, 1,
                    seed_of(seed, absl::StrCat(prefix, item.key())));
  }
}

}  // namespace

void default_(Module& module, uint64_t seed, const ModuleInit& custom) {
  struct Step {
    std::string prefix;
    Module* module;
    std::function<void(const Own&)> init;
  };
  std::vector<Step> steps;
  std::unordered_set<const Module*> seen;
  const auto plan = [&](const std::string& name, Module& own) {
    if (!seen.insert(&own).second) return;
    if (custom && custom(name, own, seed)) return;
    Step step{name.empty() ? "" : absl::StrCat(name, "."), &own, InitOf(own)};
    TORCH_CHECK_NOT_IMPLEMENTED(
        step.init ||
            (ParametersOf(own).is_empty() && BuffersOf(own).is_empty()),
        "init::default_: '", name, "' is a ", type_name(own),
        ", which is none of torch::nn's, and has parameters or buffers of its "
        "own; initialise them in `custom`");
    steps.push_back(std::move(step));
  };
  plan("", module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    plan(item.key(), *item.value());
  }
  for (const Step& step : steps) {
    if (step.init) step.init(Own(step.prefix, *step.module, seed));
  }
  // Outer after inner, as constructors run.
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    InitBelow(*step->module, step->prefix, seed);
  }
}

}  // namespace fsdp::init
