// SPDX-License-Identifier: Apache-2.0
// Reads a rule file's header: sizes, params, sides, states. RuleReader reads
// the rules.
// Tested by tests/dcp/mapping/language/mapping_file_test.cc.
#include "dcp/mapping/language/mapping_reader.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/base/status.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/mapping/language/rule_reader.h"
#include "dcp/mapping/language/tree_fields.h"
#include "document/document.h"

namespace dcp {
namespace {

using Kind = Node::Kind;

// Keywords in rules, which cannot be the name of a side.
constexpr absl::string_view kReserved[] = {"each",      "rules",    "when",
                                           "for",       "of",       "copies",
                                           "tolerates", "optional", "dtype"};

static_assert(kMaxMappingBytes == document::kMaxDocumentBytes);
constexpr document::StrictLimits kYamlLimits = {
    .depth = kMaxMappingDepth,
    .keys = kMaxMappingKeys,
    .text_bytes = kMaxMappingTextBytes};

bool IsSideName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '.' || c == '@';
  });
}

// Reads a whole file except for the rules.
class Reader {
 public:
  Reader(absl::string_view file_name, const TreeFields& fields)
      : fields_(fields) {
    file_.file_name = std::string(file_name);
  }

  absl::StatusOr<MappingFile> Read(const Node& root) {
    DCP_RETURN_IF_ERROR(fields_.CheckMap(root, "a rule file"));
    DCP_RETURN_IF_ERROR(fields_.CheckKeys(
        root, {"tessera-mapping", "name", "model_types", "config", "params",
               "sides", "states", "drop", "rules"}));
    for (const absl::string_view key :
         {"tessera-mapping", "name", "sides", "rules"}) {
      if (root.Find(key) == nullptr) {
        return fields_.Refuse(root, absl::StrCat("there is no key ", key));
      }
    }
    const Node& version = *root.Find("tessera-mapping");
    if (version.text != "1") {
      return fields_.Refuse(version, absl::StrCat("tessera-mapping is \"",
                                                  version.text, "\", not 1"));
    }
    DCP_ASSIGN_OR_RETURN(file_.name, fields_.Text(*root.Find("name"), "name"));
    if (const Node* types = root.Find("model_types")) {
      DCP_ASSIGN_OR_RETURN(file_.model_types,
                           fields_.Texts(*types, "model_types"));
    }
    DCP_RETURN_IF_ERROR(ReadParams(root.Find("params")));
    DCP_RETURN_IF_ERROR(ReadConfig(root.Find("config")));
    DCP_RETURN_IF_ERROR(ReadSides(*root.Find("sides")));
    DCP_RETURN_IF_ERROR(ReadStates(root.Find("states")));
    DCP_RETURN_IF_ERROR(ReadDrop(root.Find("drop")));
    DCP_RETURN_IF_ERROR(RuleReader(fields_, file_).Read(*root.Find("rules")));
    return std::move(file_);
  }

 private:
  absl::Status ReadParams(const Node* params) {
    if (params == nullptr || params->kind == Kind::kNull)
      return absl::OkStatus();
    DCP_RETURN_IF_ERROR(fields_.CheckMap(*params, "params"));
    for (const auto& [name, value] : params->entries) {
      DCP_ASSIGN_OR_RETURN(file_.params[name], fields_.Integer(value, name));
    }
    return absl::OkStatus();
  }

  absl::Status ReadConfig(const Node* config) {
    if (config == nullptr || config->kind == Kind::kNull)
      return absl::OkStatus();
    DCP_RETURN_IF_ERROR(fields_.CheckMap(*config, "config"));
    for (const auto& [name, value] : config->entries) {
      MappingFile::Size size;
      size.name = name;
      size.line = value.key_position.line;
      if (value.kind == Kind::kList) {
        for (const Node& item : value.items) {
          DCP_ASSIGN_OR_RETURN(size.formulas.emplace_back(),
                               fields_.ReadFormula(item, name));
        }
      } else {
        DCP_ASSIGN_OR_RETURN(size.formulas.emplace_back(),
                             fields_.ReadFormula(value, name));
      }
      if (size.formulas.empty()) {
        return fields_.Refuse(value, absl::StrCat(name, " has no formula"));
      }
      if (file_.params.contains(name)) {
        return fields_.Refuse(
            value, absl::StrCat(name, " is in config and in params"));
      }
      file_.config.push_back(std::move(size));
    }
    return absl::OkStatus();
  }

  absl::Status ReadSides(const Node& sides) {
    DCP_RETURN_IF_ERROR(fields_.CheckMap(sides, "sides"));
    if (sides.entries.size() > kMaxMappingSides) {
      return fields_.Refuse(sides, absl::StrCat("there are more than ",
                                                kMaxMappingSides, " sides"));
    }
    for (const auto& [name, value] : sides.entries) {
      if (!IsSideName(name) ||
          std::find(std::begin(kReserved), std::end(kReserved), name) !=
              std::end(kReserved)) {
        return fields_.Refuse(
            sides, absl::StrCat("a side cannot be called ", name,
                                "; use letters, digits, _, . and @"));
      }
      MappingSide& side = file_.sides.emplace_back();
      side.name = name;
      if (value.kind == Kind::kNull) continue;
      DCP_RETURN_IF_ERROR(ReadSide(value, side));
    }
    if (file_.sides.size() < 2) {
      return fields_.Refuse(sides, "there are fewer than two sides");
    }
    return absl::OkStatus();
  }

  absl::Status ReadSide(const Node& tree, MappingSide& side) {
    DCP_RETURN_IF_ERROR(fields_.CheckMap(tree, side.name));
    DCP_RETURN_IF_ERROR(fields_.CheckKeys(
        tree, {"of", "spell", "stack", "blocks", "may_lack"}));
    if (const Node* prefix = tree.Find("may_lack")) {
      DCP_ASSIGN_OR_RETURN(side.may_lack, fields_.Text(*prefix, "may_lack"));
    }
    if (const Node* blocks = tree.Find("blocks")) {
      DCP_ASSIGN_OR_RETURN(side.blocks, ReadBlocks(*blocks));
    }
    const Node* of = tree.Find("of");
    if (of == nullptr && tree.Find("spell") == nullptr &&
        tree.Find("stack") == nullptr) {
      return absl::OkStatus();
    }
    if (of == nullptr) {
      return fields_.Refuse(
          tree, absl::StrCat(side.name, " does not say which side it is of"));
    }
    DCP_ASSIGN_OR_RETURN(side.of, fields_.Text(*of, "of"));
    // This also rules out circles.
    if (side.of == side.name || file_.FindSide(side.of) == nullptr) {
      return fields_.Refuse(*of,
                            absl::StrCat(side.name, " is of ", side.of,
                                         ", which is not a side before it"));
    }
    if (const Node* stack = tree.Find("stack")) {
      DCP_ASSIGN_OR_RETURN(const std::string text,
                           fields_.Text(*stack, "stack"));
      side.stack = absl::StrSplit(text, ' ', absl::SkipEmpty());
    }
    const Node* spell = tree.Find("spell");
    if (spell == nullptr) return absl::OkStatus();
    DCP_RETURN_IF_ERROR(fields_.CheckList(*spell, "spell"));
    for (const Node& pair : spell->items) {
      DCP_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                           fields_.Texts(pair, "a pair of spell"));
      if (texts.size() != 2) {
        return fields_.Refuse(pair, "spell has a line that is not [OLD, NEW]");
      }
      side.spell.emplace_back(texts[0], texts[1]);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<MappingBlocks> ReadBlocks(const Node& tree) {
    DCP_RETURN_IF_ERROR(fields_.CheckMap(tree, "blocks"));
    DCP_RETURN_IF_ERROR(fields_.CheckKeys(
        tree, {"kind", "weight", "codes", "scales", "except"}));
    for (const absl::string_view key : {"kind", "weight", "codes", "scales"}) {
      if (tree.Find(key) == nullptr) {
        return fields_.Refuse(tree, absl::StrCat("blocks has no key ", key));
      }
    }
    MappingBlocks blocks;
    const Node& kind = *tree.Find("kind");
    if (kind.text == "mxfp4") {
      blocks.kind = MappingBlocks::Kind::kMxfp4;
    } else if (kind.text != "fp8-128") {
      return fields_.Refuse(kind,
                            absl::StrCat("the kind of blocks is \"", kind.text,
                                         "\", not fp8-128 or mxfp4"));
    }
    const auto read = [&](absl::string_view key) {
      const Node& name = *tree.Find(key);
      return fields_.ReadName(name, name.text);
    };
    DCP_ASSIGN_OR_RETURN(blocks.weight, read("weight"));
    DCP_ASSIGN_OR_RETURN(blocks.codes, read("codes"));
    DCP_ASSIGN_OR_RETURN(blocks.scales, read("scales"));
    if (const Node* except = tree.Find("except")) {
      DCP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           fields_.Texts(*except, "except"));
      if (names.size() > kMaxMappingKeys) {
        return fields_.Refuse(*except, absl::StrCat("except has more than ",
                                                    kMaxMappingKeys, " names"));
      }
      for (const std::string& name : names) {
        DCP_ASSIGN_OR_RETURN(blocks.except.emplace_back(),
                             fields_.ReadName(*except, name));
      }
    }
    if (blocks.weight.variables() != blocks.scales.variables() ||
        blocks.codes.variables() != blocks.scales.variables()) {
      return fields_.Refuse(
          tree, "the names of blocks do not have the same variables");
    }
    return blocks;
  }

  // Runs `read` for the side named by each key in `tree`.
  template <typename Read>
  absl::Status ForSides(const Node* tree, absl::string_view key,
                        const Read& read) {
    if (tree == nullptr || tree->kind == Kind::kNull) return absl::OkStatus();
    DCP_RETURN_IF_ERROR(fields_.CheckMap(*tree, key));
    for (const auto& [name, value] : tree->entries) {
      if (file_.FindSide(name) == nullptr) {
        return fields_.Refuse(value, absl::StrCat(name, " is not a side"));
      }
    }
    for (MappingSide& side : file_.sides) {
      DCP_RETURN_IF_ERROR(read(side, tree->Find(side.name)));
    }
    return absl::OkStatus();
  }

  absl::Status ReadStates(const Node* states) {
    return ForSides(
        states, "states", [this](MappingSide& side, const Node* tree) {
          if (tree == nullptr) {
            if (!side.of.empty()) side.states = file_.FindSide(side.of)->states;
            return absl::OkStatus();
          }
          DCP_ASSIGN_OR_RETURN(const std::string text,
                               fields_.Text(*tree, side.name));
          DCP_ASSIGN_OR_RETURN(side.states, fields_.ReadName(*tree, text));
          std::set<std::string> variables;
          for (const NameTemplate::Variable& v : side.states->variables()) {
            if (!v.is_index) variables.insert(v.name);
          }
          if (variables != std::set<std::string>{"param", "slot"} ||
              side.states->variables().size() != 2) {
            return fields_.Refuse(
                *tree,
                "states needs {param:**} and {slot:*}, and no other variables");
          }
          return absl::OkStatus();
        });
  }

  absl::Status ReadDrop(const Node* drop) {
    std::map<std::string, std::vector<std::string>> names;
    return ForSides(
        drop, "drop", [&](MappingSide& side, const Node* tree) -> absl::Status {
          std::vector<std::string>& mine = names[side.name];
          if (!side.of.empty()) {
            for (const std::string& name : names[side.of]) {
              std::vector<std::string> stacked;
              DCP_ASSIGN_OR_RETURN(mine.emplace_back(),
                                   RuleReader::Spell(side, name, stacked));
            }
          }
          if (tree != nullptr) {
            DCP_ASSIGN_OR_RETURN(const std::vector<std::string> own,
                                 fields_.Texts(*tree, side.name));
            mine.insert(mine.end(), own.begin(), own.end());
          }
          for (const std::string& name : mine) {
            DCP_ASSIGN_OR_RETURN(
                side.drop.emplace_back(),
                fields_.ReadName(tree == nullptr ? Node() : *tree, name));
          }
          if (side.drop.size() > kMaxMappingKeys) {
            return absl::InvalidArgumentError(
                absl::StrCat(file_.file_name, ": ", side.name,
                             " drops more than ", kMaxMappingKeys, " names"));
          }
          return absl::OkStatus();
        });
  }

  const TreeFields& fields_;
  MappingFile file_;
};

}  // namespace

absl::StatusOr<MappingFile> ReadMappingFile(absl::string_view text,
                                            absl::string_view file_name) {
  DCP_ASSIGN_OR_RETURN(const Node root,
                       document::ParseStrictYaml(file_name, text, kYamlLimits));
  const TreeFields fields(file_name);
  return Reader(file_name, fields).Read(root);
}

}  // namespace dcp
