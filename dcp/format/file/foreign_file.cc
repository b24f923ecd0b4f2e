// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/file/foreign_file.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "dcp/base/bytes.h"

namespace dcp {
namespace {

struct Foreign {
  absl::string_view sign;  // at the file's beginning, or at the end of the name
  absl::string_view text;
};

constexpr absl::string_view kGguf =
    "a GGUF file of llama.cpp: take the model that it was made of, or in "
    "Python AutoModelForCausalLM.from_pretrained(DIR, gguf_file=NAME)"
    ".save_pretrained(NEW_DIR)";
constexpr absl::string_view kHdf5 =
    "an HDF5 file, as Keras and TensorFlow write them: in Python, with "
    "transformers 4, AutoModel.from_pretrained(DIR, from_tf=True)"
    ".save_pretrained(NEW_DIR)";
constexpr absl::string_view kNpy =
    "an array of NumPy: in Python, safetensors.numpy.save_file({'NAME': "
    "numpy.load(FILE)}, NEW_FILE)";
constexpr absl::string_view kNpz =
    "arrays of NumPy, which MLX and others use: in Python, "
    "safetensors.numpy.save_file(dict(numpy.load(FILE)), NEW_FILE)";

constexpr Foreign kForeignContents[] = {
    {"version https://git-lfs",
     "a pointer of Git LFS; the contents were not fetched: run `git lfs "
     "pull` there, or `hf download` for a model of Hugging Face"},
    {"# xet version",
     "a pointer of Xet; the contents were not fetched: run `git xet "
     "checkout`, or `hf download` for a model of Hugging Face"},
    {"<?xml", "an error of a web server in XML, instead of the file"},
    {"Entry not found", "an error of a web server, instead of the file"},
    {"Access to model", "an error of a web server: log in to read the model"},
    {"Invalid username", "an error of a web server: log in to read the model"},
    {"GGUF", kGguf},
    {"\x93NUMPY", kNpy},
    {"\x89HDF", kHdf5},
    {"PK\x05\x06", "an empty zip archive"},
    {"\x1f\x8b", "a gzip file; decompress it first"},
    {"\x28\xb5\x2f\xfd", "a zstd file; decompress it first"},
    {"\x04\x22\x4d\x18", "an lz4 file; decompress it first"},
    {"BZh", "a bzip2 file; decompress it first"},
    {"\xfd"
     "7zXZ",
     "an xz file; decompress it first"},
    {"sys_info", "a tar archive (PyTorch before 0.1.10)"},
};

constexpr Foreign kForeignNames[] = {
    {".gguf", kGguf},
    {".h5", kHdf5},
    {".keras", kHdf5},
    {".npy", kNpy},
    {".npz", kNpz},
    {".nemo",
     "an archive of NeMo, which is not supported: unpack it with tar and give "
     "its model_weights.ckpt or model_weights"},
    {".msgpack",
     "a file with weights of Flax: in Python, with transformers 4, "
     "AutoModel.from_pretrained(DIR, from_flax=True).save_pretrained(NEW_DIR)"},
    {".onnx",
     "a model of ONNX: export the weights with the program that made it, or "
     "with onnx.numpy_helper"},
    {".pb",
     "a graph of TensorFlow: export its weights there, for example with "
     "tf.train.load_checkpoint"},
    {".tflite", "a model of TensorFlow Lite: take the model it was made of"},
    {".pt2",
     "a program of torch.export, which holds code: in Python, "
     "torch.save(torch.export.load(FILE).state_dict, NEW_FILE)"},
};

bool IsWebPage(absl::string_view head) {
  const std::string text = absl::AsciiStrToLower(
      absl::StripLeadingAsciiWhitespace(head).substr(0, 20));
  return absl::StartsWith(text, "<!doctype html") ||
         absl::StartsWith(text, "<html");
}

// The first file name in a zip archive; empty for other files.
absl::string_view FirstInZip(absl::string_view head) {
  constexpr size_t kLengthOffset = 26;
  constexpr size_t kNameOffset = 30;
  if (!absl::StartsWith(head, "PK\x03\x04") || head.size() < kNameOffset) {
    return "";
  }
  return head.substr(kNameOffset, LoadLittleEndian<uint16_t>(
                                      AsBytes(head).data() + kLengthOffset));
}

// TensorFlow's "weights-00001.data-00000-of-00002".
bool IsTensorFlowData(absl::string_view name) {
  return absl::StrContains(name, ".data-0") && absl::StrContains(name, "-of-");
}

}  // namespace

std::string ForeignContent(absl::string_view head) {
  if (IsWebPage(head)) {
    return "a web page, not the file itself: fetch it with the link for "
           "downloading, logged in if the model needs that";
  }
  if (absl::EndsWith(FirstInZip(head), ".npy")) return std::string(kNpz);
  if (head.size() >= 262 && head.substr(257, 5) == "ustar") {
    return "a tar archive; unpack it first and give the file in it";
  }
  for (const Foreign& foreign : kForeignContents) {
    if (absl::StartsWith(head, foreign.sign)) return std::string(foreign.text);
  }
  return "";
}

std::string ForeignName(absl::string_view name) {
  if (absl::StartsWith(name, "streaming_params") ||
      absl::StartsWith(name, "streaming_train_state")) {
    return "a checkpoint of EasyLM (JAX): convert it with EasyLM's scripts for "
           "Hugging Face";
  }
  if (IsTensorFlowData(name)) {
    return "a checkpoint of TensorFlow: read it there with "
           "tf.train.load_checkpoint";
  }
  for (const Foreign& foreign : kForeignNames) {
    if (absl::EndsWith(name, foreign.sign)) return std::string(foreign.text);
  }
  return "";
}

}  // namespace dcp
