// SPDX-License-Identifier: Apache-2.0

#include "tests/fsdp/parity/job_model.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "ATen/ops/from_blob.h"
#include "c10/core/GradMode.h"
#include "c10/util/Exception.h"
#include "fsdp/examples/train_llama/model.h"
#include "tests/fsdp/parity/gpt.h"

namespace fsdp::testing {
namespace {

using Json = nlohmann::json;

template <typename Holder>
Model Hold(Holder model) {
  std::vector<std::shared_ptr<torch::nn::Module>> layers(model->layers->begin(),
                                                         model->layers->end());
  return {.module = model.ptr(),
          .layers = std::move(layers),
          .forward = [model](const at::Tensor& tokens) mutable {
            return model->forward(tokens);
          }};
}

}  // namespace

at::ScalarType DtypeNamed(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "float64") return at::kDouble;
  TORCH_CHECK_VALUE(name == "bfloat16", "no dtype of a job: '", name, "'");
  return at::kBFloat16;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file.is_open(), "cannot read '", path, "'");
  return std::string((std::istreambuf_iterator<char>(file)),
                     std::istreambuf_iterator<char>());
}

Model MakeModel(const Json& config) {
  if (config["model"] == "gpt") {
    return Hold(Gpt(config["checkpoint_activations"].get<bool>()));
  }
  // SMALL_LLAMA in models.py.
  return Hold(llama::Llama(
      llama::ModelOptions{.vocab_size = 37,
                          .dim = 24,
                          .num_layers = 2,
                          .num_heads = 4,
                          .num_kv_heads = 2,
                          .ffn_dim = 44,
                          .tied_embeddings = config["model"] == "llama_tied"}));
}

void LoadWeights(const std::string& folder, torch::nn::Module& module) {
  const c10::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    std::string bytes = ReadFile(folder + "/" + item.key() + ".bin");
    TORCH_CHECK(bytes.size() == item.value().nbytes(), item.key(), " has ",
                bytes.size(), " bytes, not ", item.value().nbytes());
    item.value().copy_(
        at::from_blob(bytes.data(), item.value().sizes(), at::kFloat));
  }
}

}  // namespace fsdp::testing
