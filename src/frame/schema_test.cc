#include "frame/schema.h"

#include <gtest/gtest.h>

#include "frame/c_arrays.h"
#include "frame/template.h"
#include "testing/frame/schemas.h"

namespace offpath::frame {
namespace {

// An ArrowSchema filled by export_schema, released with this object.
struct Exported {
  explicit Exported(const Schema& schema) { export_schema(schema, &c); }
  ~Exported() {
    if (c.release != nullptr) c.release(&c);
  }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;
  ArrowSchema c{};
};

Bytes metadata_of(const std::vector<std::byte>& message) { return Bytes(message).subspan(message_prefix_bytes); }

// `depth` lists in one another around a number, the number included.
Schema nested(int depth) {
  Field field{.name = "leaf", .type = Type::int8};
  for (int i = 1; i < depth; ++i) {
    Field list{.name = "list", .type = Type::list};
    list.children.push_back(std::move(field));
    field = std::move(list);
  }
  return {.fields = {std::move(field)}};
}

Schema wide(std::size_t columns) {
  Schema schema;
  for (std::size_t i = 0; i < columns; ++i)
    schema.fields.push_back({.name = fmt::format("c{}", i), .type = Type::int8});
  return schema;
}

TEST(Schema, EveryTypeCrossesEachWay) {
  for (const Schema& schema : {every_type(), every_nesting(), Schema{}}) {
    const auto decoded = decode(encode(schema));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(*decoded, schema);

    const Exported exported(schema);
    const auto imported = import_schema(exported.c);
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(*imported, schema);

    const auto message = schema_message(schema);
    ASSERT_TRUE(message) << message.error().message;
    const auto read = read_schema_metadata(metadata_of(*message));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, schema);
  }
}

TEST(Schema, EveryTypeIsCovered) {
  std::vector<bool> seen(types_count);
  for (const Field& field : every_type().fields) seen[static_cast<std::size_t>(field.type)] = true;
  for (const Field& field : every_nesting().fields) seen[static_cast<std::size_t>(field.type)] = true;
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(seen[i]) << type_name(static_cast<Type>(i));
}

// The bytes are read by other versions of this program: a change here is a change of the protocol.
TEST(Schema, EncodedBytesStayWhatTheyAre) {
  const Schema schema{.fields = {{.name = "x", .type = Type::float64, .nullable = false}}};
  const std::vector<std::uint8_t> expected{'O', 'F', 'P', 'S', 1, 0, 0, 0, 41, 0, 0, 0,  // magic, version, zero, bytes
                                           0,   0,   1,   0,                             // metadata, fields
                                           12,  0,   0,   0,   0, 0, 0, 0, 0,  0, 0, 0,
                                           0,   0,   0,   0,  // type, flags, unit, zero, width, precision, scale
                                           1,   0,   'x', 0,   0, 0, 0, 0, 0};  // name, time zone, metadata, children
  const std::vector<std::byte> encoded = encode(schema);
  ASSERT_EQ(encoded.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(static_cast<std::uint8_t>(encoded[i]), expected[i]) << i;
}

TEST(Schema, NoPrefixOfAnEncodingDecodes) {
  std::vector<std::byte> bytes = encode(every_nesting());
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(Bytes(bytes).first(size))) << size;
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode(bytes));
}

// Even if the total is corrected.
TEST(Schema, NoTruncatedEncodingDecodes) {
  for (std::size_t size = 12; size < encode(every_nesting()).size(); ++size) {
    std::vector<std::byte> bytes = encode(every_nesting());
    bytes.resize(size);
    store(bytes.data() + 8, static_cast<std::uint32_t>(size));
    EXPECT_FALSE(decode(bytes)) << size;
  }
}

TEST(Schema, AChangedByteIsRefusedOrMeansAnotherSchema) {
  const std::vector<std::byte> original = encode(every_type());
  for (std::size_t at = 0; at < original.size(); ++at) {
    for (const unsigned change : {1U, 0x80U, 0xFFU}) {
      std::vector<std::byte> bytes = original;
      bytes[at] ^= static_cast<std::byte>(change);
      const auto decoded = decode(bytes);
      if (decoded) {
        EXPECT_EQ(encode(*decoded), bytes) << "byte " << at;
      } else {
        EXPECT_FALSE(decoded.error().message.empty());
      }
    }
  }
}

TEST(Schema, AnotherVersionSaysSo) {
  std::vector<std::byte> bytes = encode(every_type());
  bytes[4] = std::byte{9};
  const auto decoded = decode(bytes);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, Error::version);
  EXPECT_EQ(decoded.error().message, "encoded schema: version 9, this side knows 1");
}

TEST(Schema, DepthAndCountAreBounded) {
  EXPECT_TRUE(decode(encode(nested(depth_max))));
  EXPECT_FALSE(decode(encode(nested(depth_max + 1))));
  EXPECT_FALSE(schema_message(nested(depth_max + 1)));
  EXPECT_TRUE(decode(encode(wide(fields_max))));
  EXPECT_FALSE(decode(encode(wide(fields_max + 1))));
  const Exported exported(nested(depth_max + 1));
  EXPECT_EQ(import_schema(exported.c).error().code, Error::too_large);
}

TEST(Schema, TextsAreBounded) {
  Schema schema{.fields = {{.name = std::string(name_bytes_max, 'n'), .type = Type::int8}}};
  EXPECT_TRUE(check(schema));
  schema.fields[0].name += 'n';
  EXPECT_EQ(check(schema).error().code, Error::too_large);
  schema.fields[0].name = "n";
  schema.fields[0].metadata.push_back({"key", std::string(schema_bytes_max, 'v')});
  EXPECT_EQ(check(schema).error().code, Error::too_large);
}

struct Wrong {
  Field field;
  std::string message;
};

TEST(Schema, ImpossibleFieldsAreNamed) {
  const Field number{.name = "number", .type = Type::int8};
  const std::vector<Wrong> all{
      {{.name = "f", .type = Type::list}, "field 'f': list has 0 children, expected 1"},
      {{.name = "f", .type = Type::int8, .children = {number}}, "field 'f': int8 has 1 children, expected 0"},
      {{.name = "f", .type = Type::map, .children = {number}},
       "field 'f': the entries of a map are a struct of 2, given int8 of 0"},
      {{.name = "f", .type = Type::decimal64, .precision = 19},
       "field 'f': decimal64 has precision 19, 1 to 18 are allowed"},
      {{.name = "f", .type = Type::decimal32, .precision = 0},
       "field 'f': decimal32 has precision 0, 1 to 9 are allowed"},
      {{.name = "f", .type = Type::time32, .unit = Unit::nanosecond}, "field 'f': time32 cannot count in ns"},
      {{.name = "f", .type = Type::fixed_binary, .width = -1}, "field 'f' has width -1, at least 0 is allowed"},
      {{.name = "f", .type = Type::float32, .dictionary = {number}},
       "field 'f': indices of a dictionary are integers, not float32"},
      {{.name = "f", .type = Type::int8, .dictionary = {number, number}},
       "field 'f' has 2 dictionaries, at most 1 is allowed"},
      {{.name = "f\xC3", .type = Type::int8}, "the name of a field in '' is not UTF-8"},
      {{.name = "f", .type = Type::structure, .children = {{.name = "g", .type = Type::list}}},
       "field 'f.g': list has 0 children, expected 1"},
      {{.name = "f", .type = Type::sparse_union},
       "field 'f': sparse_union has 0 children and 0 type codes, one each is expected"},
      {{.name = "f", .type = Type::dense_union, .children = {number}, .type_codes = {1, 2}},
       "field 'f': dense_union has 1 children and 2 type codes, one each is expected"},
      {{.name = "f", .type = Type::dense_union, .children = {number}, .type_codes = {-1}},
       "field 'f': dense_union has the type code -1, 0 to 127 are allowed, each once"},
      {{.name = "f", .type = Type::dense_union, .children = {number, number}, .type_codes = {7, 7}},
       "field 'f': dense_union has the type code 7 twice, 0 to 127 are allowed, each once"},
      {{.name = "f", .type = Type::structure, .children = {number}, .type_codes = {7}},
       "field 'f': struct has 1 type codes, expected none"},
  };
  for (const Wrong& wrong : all) {
    const Status status = check({.fields = {wrong.field}});
    ASSERT_FALSE(status) << wrong.message;
    EXPECT_EQ(status.error().message, wrong.message);
    // An encoding has room for one dictionary only.
    if (wrong.field.dictionary.size() == 2) continue;
    EXPECT_FALSE(decode(encode({.fields = {wrong.field}}))) << wrong.message;
  }
}

TEST(Schema, OnlyWellFormedUtf8IsAName) {
  const auto named = [](std::string name) { return check({.fields = {{.name = std::move(name)}}}).has_value(); };
  for (const char* good : {"", "ascii", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(named(good)) << good;
  }
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xC3\x28", "a\xFF"}) {
    EXPECT_FALSE(named(bad)) << bad;
  }
}

TEST(Schema, UnknownFormatsAreNamedByPath) {
  for (const char* format : {"", "d:", "d:1", "d:1,2,3", "w:", "w:x", "w:4x", "+w:", "tsx:", "tdx", "ii", "+us",
                             "+ud:1,", "+ud:128", "+us:-1"}) {
    Exported exported(
        {.fields = {{.name = "a", .type = Type::structure, .children = {{.name = "b", .type = Type::int8}}}}});
    exported.c.children[0]->children[0]->format = format;
    const auto imported = import_schema(exported.c);
    ASSERT_FALSE(imported) << format;
    EXPECT_EQ(imported.error().code, Error::unsupported);
    EXPECT_EQ(imported.error().message,
              fmt::format("field 'a.b' has the Arrow format \"{}\", which cannot be stored", format));
  }
}

TEST(Schema, ViewsAreImportedAsWhatIsStored) {
  const std::pair<const char*, Type> types[] = {{"vu", Type::large_utf8}, {"vz", Type::large_binary}};
  for (const auto& [format, type] : types) {
    const Exported exported({.fields = {{.name = "a", .type = Type::int8}}});
    exported.c.children[0]->format = format;
    const auto imported = import_schema(exported.c);
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(imported->fields[0], (Field{.name = "a", .type = type, .view = true}));
    EXPECT_EQ(*decode(encode(*imported)), (Schema{.fields = {{.name = "a", .type = type}}}));
    EXPECT_TRUE(make_layout(*imported)->gathered);
  }
  const Field number{.name = "n", .type = Type::int8};
  for (const auto& [format, type] : {std::pair{"+vl", Type::list}, std::pair{"+vL", Type::large_list}}) {
    const Exported exported({.fields = {{.name = "a", .type = Type::list, .children = {number}}}});
    exported.c.children[0]->format = format;
    EXPECT_EQ(import_schema(exported.c)->fields[0],
              (Field{.name = "a", .type = type, .children = {number}, .view = true}));
  }
}

TEST(Schema, RunsAreImportedAsTheirValuesUnderTheirOwnName) {
  const Field ends{.name = "run_ends", .type = Type::int32, .nullable = false};
  const Field values{.name = "values", .type = Type::int8, .nullable = false, .dictionary = {{.type = Type::utf8}}};
  const Field column{.name = "a", .type = Type::structure, .metadata = {{"unit", "m"}}, .children = {ends, values}};
  const auto imported_as = [&](const char* format_of_ends) {
    const Exported exported({.fields = {column}});
    exported.c.children[0]->format = "+r";
    exported.c.children[0]->children[0]->format = format_of_ends;
    return import_schema(exported.c);
  };
  for (const auto& [format, bytes] : {std::pair{"s", 2}, std::pair{"i", 4}, std::pair{"l", 8}}) {
    const auto imported = imported_as(format);
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(imported->fields[0], (Field{.name = "a",
                                          .type = Type::int8,
                                          .metadata = {{"unit", "m"}},
                                          .dictionary = {{.type = Type::utf8}},
                                          .run_ends = {static_cast<std::uint8_t>(bytes)}}));
  }
  EXPECT_EQ(imported_as("I").error().message,
            "field 'a' has run ends of the Arrow format \"I\"; they are int16, int32 or int64");
  const Exported alone({.fields = {{.name = "a", .type = Type::int8}}});
  alone.c.children[0]->format = "+r";
  EXPECT_EQ(import_schema(alone.c).error().message,
            "field 'a': run_end_encoded has 0 children, expected run ends and values");
}

TEST(Schema, BrokenStructsAreRefused) {
  const Schema schema{.fields = {{.name = "a", .type = Type::int8}}};
  ArrowSchema released{};
  EXPECT_EQ(import_schema(released).error().code, Error::invalid);
  {
    Exported exported(schema);
    exported.c.format = "i";
    EXPECT_EQ(import_schema(exported.c).error().message,
              "the schema of a record batch has the format \"+s\", given \"i\"");
  }
  {
    Exported exported(schema);
    ArrowSchema* child = std::exchange(exported.c.children[0], nullptr);
    EXPECT_EQ(import_schema(exported.c).error().message, "child 0 of '' is null");
    exported.c.children[0] = child;
    exported.c.n_children = -1;
    EXPECT_FALSE(import_schema(exported.c));
    exported.c.n_children = 1;
  }
}

TEST(Schema, DescribesTypesToPeople) {
  const auto text = [](Field field) { return describe(field); };
  EXPECT_EQ(text({.type = Type::fixed_list, .width = 3, .children = {{.name = "item", .type = Type::float64}}}),
            "fixed_size_list<item: float64>[3]");
  EXPECT_EQ(text({.type = Type::int8, .dictionary = {{.type = Type::utf8}}}),
            "dictionary<values=string, indices=int8, ordered=0>");
  EXPECT_EQ(text({.type = Type::fixed_binary, .width = 4}), "fixed_size_binary[4]");
  EXPECT_EQ(text({.type = Type::dense_union,
                  .children = {{.name = "a", .type = Type::int8}, {.name = "b", .type = Type::large_utf8}},
                  .type_codes = {0, 5}}),
            "dense_union<a: int8=0, b: large_string=5>");
  const Field entries{.name = "entries",
                      .type = Type::structure,
                      .children = {{.name = "key", .type = Type::utf8}, {.name = "value", .type = Type::date32}}};
  EXPECT_EQ(text({.type = Type::map, .children = {entries}}), "map<string, date32[day]>");
  EXPECT_EQ(text({.type = Type::timestamp, .unit = Unit::microsecond, .timezone = "UTC"}), "timestamp[us, tz=UTC]");
  EXPECT_EQ(text({.type = Type::decimal128, .precision = 5, .scale = -2}), "decimal128(5, -2)");
  EXPECT_EQ(text({.type = Type::structure,
                  .children = {{.name = "a", .type = Type::boolean}, {.name = "b", .type = Type::null}}}),
            "struct<a: bool, b: null>");
}

TEST(Layout, NumbersNodesBuffersAndParts) {
  const Schema schema{
      .fields = {
          {.name = "id", .type = Type::int64},
          {.name = "pos", .type = Type::fixed_list, .width = 3, .children = {{.name = "item", .type = Type::float64}}},
          {.name = "kind", .type = Type::int8, .dictionary = {{.type = Type::utf8}}}}};
  const auto layout = make_layout(schema);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->columns, (std::vector<std::uint32_t>{0, 1, 3}));
  ASSERT_EQ(layout->nodes.size(), 5u);
  ASSERT_EQ(layout->parts.size(), 2u);
  EXPECT_EQ(layout->parts[0].node_end, 4u);
  EXPECT_EQ(layout->parts[0].buffer_end, 7u);
  EXPECT_EQ(layout->parts[1].node_begin, 4u);
  EXPECT_EQ(layout->parts[1].buffer_end, 10u);
  EXPECT_EQ(layout->nodes[1].list_size, 3u);
  EXPECT_EQ(layout->nodes[1].end, 3u);
  EXPECT_EQ(layout->nodes[2].value_bytes, 8u);
  EXPECT_EQ(layout->nodes[3].dictionary, 1u);
  EXPECT_EQ(layout->buffers[8].kind, BufferKind::offsets32);
  EXPECT_EQ(path_of(*layout, 2), "pos.item");
  EXPECT_EQ(path_of(*layout, 4), "dictionary of kind");
  EXPECT_FALSE(layout->fixed);
}

TEST(Layout, WritesInnerDictionariesFirst) {
  Field inner{.name = "inner", .type = Type::int8, .dictionary = {{.type = Type::utf8}}};
  Field values{.type = Type::structure, .children = {inner}};
  const Schema schema{.fields = {{.name = "outer", .type = Type::int32, .dictionary = {values}}}};
  const auto layout = make_layout(schema);
  ASSERT_TRUE(layout);
  ASSERT_EQ(layout->parts.size(), 3u);
  EXPECT_EQ(layout->nodes[0].dictionary, 2u);
  EXPECT_EQ(layout->nodes[layout->parts[1].node_begin].type, Type::utf8);
  EXPECT_EQ(layout->nodes[layout->parts[2].node_begin].type, Type::structure);
}

TEST(Layout, KnowsWhenRowsTellEverything) {
  const auto fixed = [](Field field) { return make_layout({.fields = {std::move(field)}})->fixed; };
  EXPECT_TRUE(fixed({.type = Type::float64}));
  EXPECT_TRUE(fixed({.type = Type::fixed_list, .width = 3, .children = {{.type = Type::int8}}}));
  EXPECT_FALSE(fixed({.type = Type::boolean}));
  EXPECT_FALSE(fixed({.type = Type::utf8}));
  EXPECT_FALSE(fixed({.type = Type::sparse_union, .children = {{.type = Type::int8}}, .type_codes = {0}}));
  EXPECT_FALSE(fixed({.type = Type::int8, .dictionary = {{.type = Type::int8}}}));
}

}  // namespace
}  // namespace offpath::frame
