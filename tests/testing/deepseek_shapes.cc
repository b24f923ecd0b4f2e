// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/deepseek_shapes.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dcp::testing {
namespace {

constexpr int kLayers = 61;
constexpr int kDenseLayers = 3;
constexpr int64_t kExperts = 256;
constexpr int64_t kHidden = 7168;
constexpr int64_t kDense = 18432;
constexpr int64_t kExpert = 2048;
constexpr int64_t kVocabulary = 129280;
constexpr int64_t kHeads = 128;
constexpr int64_t kQueryRank = 1536;
constexpr int64_t kKeyRank = 512;

class Model {
 public:
  void Add(absl::string_view name, const Dims& shape) {
    tensors_.push_back(
        {.name = std::string(name), .dtype = DType::kBFloat16, .shape = shape});
  }

  void AddAttention(const std::string& layer) {
    const std::string at = absl::StrCat(layer, "self_attn.");
    Add(absl::StrCat(layer, "input_layernorm.weight"), {kHidden});
    Add(absl::StrCat(layer, "post_attention_layernorm.weight"), {kHidden});
    Add(absl::StrCat(at, "q_a_proj.weight"), {kQueryRank, kHidden});
    Add(absl::StrCat(at, "q_a_layernorm.weight"), {kQueryRank});
    Add(absl::StrCat(at, "q_b_proj.weight"), {kHeads * 192, kQueryRank});
    Add(absl::StrCat(at, "kv_a_proj_with_mqa.weight"),
        {kKeyRank + 64, kHidden});
    Add(absl::StrCat(at, "kv_a_layernorm.weight"), {kKeyRank});
    Add(absl::StrCat(at, "kv_b_proj.weight"), {kHeads * 256, kKeyRank});
    Add(absl::StrCat(at, "o_proj.weight"), {kHidden, kHeads * 128});
  }

  void AddMlp(const std::string& at, int64_t width) {
    Add(absl::StrCat(at, ".gate_proj.weight"), {width, kHidden});
    Add(absl::StrCat(at, ".up_proj.weight"), {width, kHidden});
    Add(absl::StrCat(at, ".down_proj.weight"), {kHidden, width});
  }

  void AddExperts(const std::string& at) {
    Add(absl::StrCat(at, ".gate.weight"), {kExperts, kHidden});
    Add(absl::StrCat(at, ".gate.e_score_correction_bias"), {kExperts});
    AddMlp(absl::StrCat(at, ".shared_experts"), kExpert);
    for (int64_t e = 0; e < kExperts; ++e) {
      AddMlp(absl::StrCat(at, ".experts.", e), kExpert);
    }
  }

  std::vector<MappingTensor> Build() {
    Add("model.embed_tokens.weight", {kVocabulary, kHidden});
    for (int i = 0; i < kLayers; ++i) {
      const std::string layer = absl::StrCat("model.layers.", i, ".");
      AddAttention(layer);
      if (i < kDenseLayers) {
        AddMlp(absl::StrCat(layer, "mlp"), kDense);
      } else {
        AddExperts(absl::StrCat(layer, "mlp"));
      }
    }
    Add("model.norm.weight", {kHidden});
    Add("lm_head.weight", {kVocabulary, kHidden});
    return std::move(tensors_);
  }

 private:
  std::vector<MappingTensor> tensors_;
};

}  // namespace

std::vector<MappingTensor> DeepSeekV3Tensors() { return Model().Build(); }

std::string DeepSeekV3Config() {
  return absl::StrCat(R"({"num_hidden_layers": )", kLayers,
                      R"(, "first_k_dense_replace": )", kDenseLayers,
                      R"(, "n_routed_experts": )", kExperts,
                      R"(, "vocab_size": )", kVocabulary,
                      R"(, "q_lora_rank": )", kQueryRank, "}");
}

}  // namespace dcp::testing
