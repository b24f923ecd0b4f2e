// SPDX-License-Identifier: Apache-2.0

#include "fsdp/module/tied_parameters.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"

namespace fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

struct DecoderImpl : torch::nn::Module {
  DecoderImpl() {
    register_module("embed", embed);
    register_module("layers", layers);
    for (int i = 0; i < 2; ++i) {
      layers->push_back(torch::nn::Sequential(torch::nn::Linear(4, 4)));
    }
    register_module("head", head);
  }
  torch::nn::Embedding embed{6, 4};
  torch::nn::ModuleList layers;
  torch::nn::Linear head{4, 6};
};
TORCH_MODULE(Decoder);

TEST(TiedParameters, NoneInAPlainModel) {
  EXPECT_THAT(find_tied_parameters(*Decoder()), IsEmpty());
}

TEST(TiedParameters, AModuleRegisteredTwiceTiesAllItsParameters) {
  torch::nn::Linear linear(2, 2);
  torch::nn::Sequential model(linear, torch::nn::Linear(2, 2), linear);
  EXPECT_THAT(find_tied_parameters(*model),
              ElementsAre(ElementsAre("0.weight", "2.weight"),
                          ElementsAre("0.bias", "2.bias")));
}

TEST(TiedParameters, OneTensorInTwoSlots) {
  Decoder decoder;
  decoder->head->register_parameter("tied", decoder->embed->weight);
  EXPECT_THAT(find_tied_parameters(*decoder),
              ElementsAre(ElementsAre("embed.weight", "head.tied")));
}

TEST(TiedParameters, UniqueParametersListEachTensorOnce) {
  torch::nn::Linear linear(2, 2);
  torch::nn::Sequential model(linear, torch::nn::Linear(2, 2), linear);
  const auto all = model->parameters(), unique = unique_parameters(*model);
  ASSERT_EQ(all.size(), 6u);
  ASSERT_EQ(unique.size(), 4u);
  for (size_t i = 0; i < unique.size(); ++i) {
    EXPECT_TRUE(unique[i].is_same(all[i]));
  }
}

TEST(TiedParameters, LowestCommonParent) {
  Decoder decoder;
  EXPECT_EQ(lowest_common_parent(*decoder, {"embed.weight", "head.weight"}),
            "");
  EXPECT_EQ(
      lowest_common_parent(*decoder, {"layers.1.0.weight", "layers.1.0.bias"}),
      "layers.1.0");
  EXPECT_EQ(lowest_common_parent(*decoder, {"head.weight"}), "head");
}

TEST(TiedParameters, AListIsNotAParent) {
  Decoder decoder;
  EXPECT_EQ(lowest_common_parent(*decoder,
                                 {"layers.0.0.weight", "layers.1.0.weight"}),
            "");
  torch::nn::ModuleList outer;
  outer->push_back(decoder);
  EXPECT_EQ(lowest_common_parent(
                *outer, {"0.layers.0.0.weight", "0.layers.1.0.weight"}),
            "0");
}

TEST(TiedParameters, UnknownNamesAreRefused) {
  Decoder decoder;
  EXPECT_THAT([&] { lowest_common_parent(*decoder, {"head.wait"}); },
              ThrowsMessage<c10::ValueError>(HasSubstr("'head.wait'")));
  EXPECT_THROW(lowest_common_parent(*decoder, {}), c10::ValueError);
}

}  // namespace
}  // namespace fsdp
