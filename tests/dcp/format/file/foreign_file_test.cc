// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/file/foreign_file.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::HasSubstr;

// The beginning of a zip archive with this name for the first file.
std::string ZipHead(const std::string& name) {
  std::string head("PK\x03\x04", 4);
  head.resize(30);
  head[26] = static_cast<char>(name.size());
  return head + name + "bytes";
}

TEST(ForeignFile, FormatsAreKnownByTheFirstBytes) {
  const std::pair<std::string, const char*> files[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:aa\n",
       "git lfs pull"},
      {"# xet version 0\nfilesize = 7\n", "hf download"},
      {"<!DOCTYPE html>\n<html>", "a web page"},
      {"\n <HTML lang=en>", "a web page"},
      {"<?xml version=\"1.0\"?><Error>", "an error of a web server"},
      {std::string("GGUF\3\0\0\0", 8), "gguf_file=NAME"},
      {std::string("\x93NUMPY\1\0", 8), "numpy.load"},
      {ZipHead("layers.0.weight.npy"), "MLX"},
      {"\x89HDF\r\n\x1a\n", "from_tf=True"},
      {"\x1f\x8b\x08", "decompress it first"},
  };
  for (const auto& [bytes, text] : files) {
    EXPECT_THAT(ForeignContent(bytes), HasSubstr(text));
  }
  EXPECT_EQ(ForeignContent(""), "");
  EXPECT_EQ(ForeignContent("PK\x03\x04"), "");
  EXPECT_EQ(ForeignContent(ZipHead("archive/data.pkl")), "");
}

TEST(ForeignFile, SomeFormatsAreKnownByTheFileName) {
  const std::pair<const char*, const char*> files[] = {
      {"flax_model.msgpack", "from_flax=True"},
      {"tf_model.h5", "from_tf=True"},
      {"saved_model.pb", "TensorFlow"},
      {"model.ckpt-7.data-00000-of-00001", "tf.train.load_checkpoint"},
      {"streaming_params_700", "EasyLM"},
      {"model.onnx", "ONNX"},
      {"model.pt2", "torch.export.load"},
      {"llama.Q4_K_M.gguf", "llama.cpp"},
      {"llama.nemo", "an archive of NeMo"},
  };
  for (const auto& [name, text] : files) {
    EXPECT_THAT(ForeignName(name), HasSubstr(text)) << name;
  }
  for (const char* name : {"model.safetensors", "model.pt", "a.json"}) {
    EXPECT_EQ(ForeignName(name), "") << name;
  }
}

}  // namespace
}  // namespace dcp
