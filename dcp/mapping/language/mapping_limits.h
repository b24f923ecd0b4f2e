// SPDX-License-Identifier: Apache-2.0
// The limits of mappings, with their reasons. Rule files may come from
// strangers, and so may the names and shapes that they are applied to.
#ifndef DCP_MAPPING_LANGUAGE_MAPPING_LIMITS_H_
#define DCP_MAPPING_LANGUAGE_MAPPING_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace dcp {

// The largest built-in rule file has 10 kB, and a config.json has less.
inline constexpr size_t kMaxMappingBytes = size_t{1} << 20;
inline constexpr size_t kMaxModelConfigBytes = size_t{1} << 20;

// How deep values in a rule file are nested: the rules below `each` need 7.
inline constexpr size_t kMaxMappingDepth = 16;
// Keys in one map: each is compared with those before it.
inline constexpr size_t kMaxMappingKeys = 1024;

// A name, a formula or a term's axes in a rule file, and a name in a
// checkpoint: real ones have less than 200 bytes.
inline constexpr size_t kMaxMappingTextBytes = 4096;
// The bytes in all rules, after those below `each` are written out.
inline constexpr size_t kMaxMappingRuleBytes = size_t{16} << 20;
inline constexpr size_t kMaxMappingRules = 4096;
inline constexpr size_t kMaxMappingSides = 64;

inline constexpr size_t kMaxMappingAxes = 16;      // in one term
inline constexpr size_t kMaxMappingSummands = 64;  // on one side of a rule
inline constexpr size_t kMaxMappingSlots = 16;     // braces in one name
// Parentheses and operators in a row that one formula nests, each of which
// takes a few frames on the parser's stack.
inline constexpr size_t kMaxFormulaDepth = 32;
// Operands and operators in one formula, and how many formulas refer to one
// another. Together they bound the stack.
inline constexpr size_t kMaxFormulaNodes = 128;
inline constexpr size_t kMaxSizeDepth = 32;

// Pieces and checks in a conversion, about 300 bytes each. DeepSeek V3, with 61
// layers and 256 experts in each, has 45,395.
inline constexpr size_t kMaxMappedPieces = size_t{1} << 20;
// How often a name is compared with a name in a rule, about 20 ns each. The
// rules for DeepSeek V3 take 200,000.
inline constexpr uint64_t kMaxNameComparisons = uint64_t{1} << 27;

// The steps to compose the pieces of two conversions, about 100 ns each.
// DeepSeek V3's take 300,000 or less.
inline constexpr uint64_t kMaxComposedSteps = uint64_t{1} << 25;

// Elements in tensors that are made up or filled at random to try a rule file:
// twice 64 MiB of them are in memory.
inline constexpr uint64_t kMaxInventedElements = uint64_t{1} << 24;

// The path to a key in config.json, such as "text_config.num_hidden_layers".
// Longer paths are never looked up.
inline constexpr size_t kMaxConfigPathBytes = 512;

// Sizes for axes and for whole tensors; their sums and products fit 64 bits.
inline constexpr uint64_t kMaxAxisSize = uint64_t{1} << 62;

}  // namespace dcp

#endif  // DCP_MAPPING_LANGUAGE_MAPPING_LIMITS_H_
