#include "host/requests/expression_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "wire/query/query.h"

namespace offpath::host {

namespace {

using wire::Expression;
using wire::expression_depth_max;
using wire::Function;
using wire::Literal;
using wire::ValueType;

constexpr std::size_t shown_bytes_max = 40;
constexpr std::size_t values_max = 4095;                 // of `in`: the column is one of is_in's arguments
constexpr std::int64_t exact_in_double_max = 1ll << 53;  // whole numbers up to here are doubles, too
constexpr std::uint64_t lowest_int64_magnitude = 1ull << 63;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_quote(char c) { return c == '"' || c == '\''; }
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_in_name(char c) { return begins_name(c) || is_digit(c); }

struct Token {
  enum class Kind : std::uint8_t { end, name, number, text, bytes, sign };
  Kind kind = Kind::end;
  std::string_view text{};  // as it is written, with its quotes
  std::size_t at = 0;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Result<Token> next() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n\f", at_), text_.size());
    if (at_ == text_.size()) return Token{Token::Kind::end, {}, at_};
    const char first = text_[at_], second = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (is_quote(first)) return quoted(Token::Kind::text, 0);
    if ((first == 'b' || first == 'B') && is_quote(second)) return quoted(Token::Kind::bytes, 1);
    if (begins_name(first)) {
      std::size_t length = 1;
      while (at_ + length < text_.size() && is_in_name(text_[at_ + length])) ++length;
      return take(Token::Kind::name, length);
    }
    if (is_digit(first) || (first == '.' && is_digit(second))) return take(Token::Kind::number, number_bytes());
    if (second == '=' && std::string_view("=!<>").find(first) != std::string_view::npos)
      return take(Token::Kind::sign, 2);
    if (std::string_view("<>+-*/&|~()[],").find(first) != std::string_view::npos) return take(Token::Kind::sign, 1);
    return fail(Error::invalid, "character {}: \"{}\" means nothing in an expression{}", place(at_),
                printable(text_.substr(at_, std::max<std::size_t>(character_bytes(text_.substr(at_)), 1))),
                first == '=' ? "; write == to compare" : "");
  }

  // The number of a character in the text, from 1.
  [[nodiscard]] std::size_t place(std::size_t at) const {
    return 1 + static_cast<std::size_t>(std::ranges::count_if(
                   text_.substr(0, at), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  }

 private:
  Token take(Token::Kind kind, std::size_t length) {
    const Token token{kind, text_.substr(at_, length), at_};
    at_ += length;
    return token;
  }
  Result<Token> quoted(Token::Kind kind, std::size_t prefix) {
    const char quote = text_[at_ + prefix];
    std::size_t end = at_ + prefix + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return fail(Error::invalid, "character {}: a text without its closing quote", place(at_));
    return take(kind, end + 1 - at_);
  }
  // As many bytes as belong to a number, well written or not.
  [[nodiscard]] std::size_t number_bytes() const {
    const std::string_view rest = text_.substr(at_);
    const bool is_hex = rest.starts_with("0x") || rest.starts_with("0X");
    std::size_t length = 1;
    for (; length < rest.size(); ++length) {
      const char c = rest[length], before = rest[length - 1];
      const bool is_exponents_sign = (c == '+' || c == '-') && !is_hex && (before == 'e' || before == 'E');
      if (!is_in_name(c) && c != '.' && !is_exponents_sign) break;
    }
    return length;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

struct Operator {
  std::string_view sign;
  Function function;
};
constexpr std::array<Operator, 1> or_words = {{{"or", Function::logical_or}}};
constexpr std::array<Operator, 1> and_words = {{{"and", Function::logical_and}}};
constexpr std::array<Operator, 1> or_signs = {{{"|", Function::logical_or}}};
constexpr std::array<Operator, 1> and_signs = {{{"&", Function::logical_and}}};
constexpr std::array<Operator, 2> sums = {{{"+", Function::add}, {"-", Function::subtract}}};
constexpr std::array<Operator, 2> products = {{{"*", Function::multiply}, {"/", Function::divide}}};
constexpr std::array<Operator, 6> comparisons = {{{"==", Function::equal},
                                                  {"!=", Function::not_equal},
                                                  {"<", Function::less},
                                                  {"<=", Function::less_equal},
                                                  {">", Function::greater},
                                                  {">=", Function::greater_equal}}};

struct NamedFunction {
  std::string_view name;
  Function function;
  std::size_t arguments;
};
constexpr std::array<NamedFunction, 6> functions = {{{"abs", Function::abs, 1},
                                                     {"sqrt", Function::sqrt, 1},
                                                     {"is_null", Function::is_null, 1},
                                                     {"is_valid", Function::is_valid, 1},
                                                     {"is_nan", Function::is_nan, 1},
                                                     {"if_else", Function::if_else, 3}}};
constexpr std::string_view function_names = "abs, sqrt, is_null, is_valid, is_nan, if_else, column";
constexpr std::array<std::string_view, 4> words = {"or", "and", "not", "in"};  // which are no columns

// A whole number that is not negative. Python's text has none beyond 63 bits.
Literal whole(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return {ValueType::int64, static_cast<std::int64_t>(value)};
  return {ValueType::uint64, value};
}

// Nothing: it does not fit 64 bits.
std::optional<Literal> negative(const Literal& number) {
  if (number.type == ValueType::float64) return Literal{ValueType::float64, -std::get<double>(number.value)};
  const std::uint64_t magnitude = number.type == ValueType::uint64
                                      ? std::get<std::uint64_t>(number.value)
                                      : static_cast<std::uint64_t>(std::get<std::int64_t>(number.value));
  if (magnitude > lowest_int64_magnitude) return std::nullopt;
  return Literal{ValueType::int64, static_cast<std::int64_t>(0 - magnitude)};
}

// A number as double, like the others. Empty: not a number, or it would lose digits.
std::optional<Literal> as_double(const Literal& number) {
  if (number.type == ValueType::float64) return number;
  const auto* given = std::get_if<std::int64_t>(&number.value);
  if (given == nullptr || *given > exact_in_double_max || *given < -exact_in_double_max) return std::nullopt;
  return Literal{ValueType::float64, static_cast<double>(*given)};
}

std::optional<Literal> as_unsigned(const Literal& number) {
  if (number.type == ValueType::uint64) return number;
  const auto* given = std::get_if<std::int64_t>(&number.value);
  if (given == nullptr || *given < 0) return std::nullopt;
  return Literal{ValueType::uint64, static_cast<std::uint64_t>(*given)};
}

// Gives all values of `in` one type, that of Arrow's array of them. False: they have no common type.
bool unify(std::vector<Literal>& values) {
  const auto has = [&](ValueType type) {
    return std::ranges::any_of(values, [&](const Literal& each) { return each.type == type; });
  };
  const auto convert = [&](std::optional<Literal> (*converted)(const Literal&)) {
    return std::ranges::all_of(values, [&](Literal& each) {
      if (each.type == ValueType::null) return true;
      const std::optional<Literal> made = converted(each);
      if (made) each = *made;
      return made.has_value();
    });
  };
  if (has(ValueType::float64)) return convert(as_double);
  if (has(ValueType::uint64)) return convert(as_unsigned);
  const auto first = std::ranges::find_if(values, [](const Literal& each) { return each.type != ValueType::null; });
  return std::all_of(first, values.end(),
                     [&](const Literal& each) { return each.type == ValueType::null || each.type == first->type; });
}

// An expression, and its properties for the enclosing one.
struct Part {
  Expression expression{};
  std::uint32_t depth = 1, nodes = 1;
  std::uint64_t bytes = 0;  // of its texts and names
  bool is_number = false;   // written as one, without a sign: a minus in front belongs to it
};

// Recursive descent, a method for each strength of operators. The depth of brackets, signs and calls is bounded as that
// of expressions is, and so is the stack.
class Parser {
 public:
  Parser(std::string_view text, std::uint32_t& nodes_left) : lexer_(text), nodes_left_(nodes_left) {}

  Result<Expression> parse() {
    OFP_TRY(advance());
    OFP_ASSIGN(Part made, disjunction());
    if (token_.kind != Token::Kind::end) return unexpected("an operator or the end");
    return std::move(made.expression);
  }

 private:
  using Method = Result<Part> (Parser::*)();

  Status advance() {
    OFP_ASSIGN(token_, lexer_.next());
    return {};
  }
  [[nodiscard]] bool is(std::string_view word) const {
    return (token_.kind == Token::Kind::name || token_.kind == Token::Kind::sign) && token_.text == word;
  }
  Status expect(std::string_view sign, std::string_view expected) {
    if (!is(sign)) return unexpected(expected);
    return advance();
  }
  [[nodiscard]] std::size_t place() const { return lexer_.place(token_.at); }
  [[nodiscard]] tl::unexpected<Failure> unexpected(std::string_view expected) const {
    const bool at_end = token_.kind == Token::Kind::end;
    return fail(Error::invalid, "character {}: {} is expected, not {}", place(), expected,
                at_end ? "the end" : fmt::format("\"{}\"", printable(token_.text.substr(0, shown_bytes_max))));
  }
  [[nodiscard]] tl::unexpected<Failure> too_deep() const {
    return fail(Error::too_large, "character {}: an expression is nested deeper than {} calls", place(),
                expression_depth_max);
  }

  Result<Part> counted(Part made) {
    if (made.depth > expression_depth_max) return too_deep();
    OFP_TRY(charge(1));
    return made;
  }
  // A copy of a part in the middle of a chain of comparisons can double the whole at each level.
  Status charge_bytes(std::uint64_t bytes) {
    if (bytes_left_ < bytes)
      return fail(Error::too_large, "character {}: texts and names of more than {} bytes in all", place(),
                  wire::query_bytes_max);
    bytes_left_ -= bytes;
    return {};
  }
  Status charge(std::uint32_t nodes) {
    if (nodes_left_ < nodes)
      return fail(Error::too_large, "character {}: the query's expressions have more than {} parts", place(),
                  wire::expression_nodes_max);
    nodes_left_ -= nodes;
    return {};
  }
  Result<Part> leaf(Expression expression) {
    Part made{std::move(expression)};
    const auto* const text = std::get_if<std::string>(&made.expression.literal.value);
    made.bytes = made.expression.field.size() + (text != nullptr ? text->size() : 0);
    OFP_TRY(charge_bytes(made.bytes));
    return counted(std::move(made));
  }
  Result<Part> leaf(Literal value) { return leaf({.kind = Expression::Kind::literal, .literal = std::move(value)}); }
  static void add(Part& made, Part argument) {
    made.depth = std::max(made.depth, argument.depth + 1);
    made.nodes += argument.nodes;
    made.bytes += argument.bytes;
    made.expression.arguments.push_back(std::move(argument.expression));
  }
  template <class... Arguments>
  Result<Part> call(Function function, Arguments... arguments) {
    Part made{wire::call(function, {})};
    (add(made, std::move(arguments)), ...);
    return counted(std::move(made));
  }

  Result<Part> deeper(Method method) {
    if (levels_ == expression_depth_max) return too_deep();
    ++levels_;
    Result<Part> made = (this->*method)();
    --levels_;
    return made;
  }
  [[nodiscard]] const Operator* operator_of(std::span<const Operator> operators) const {
    const auto found = std::ranges::find_if(operators, [&](const Operator& each) { return is(each.sign); });
    return found == operators.end() ? nullptr : &*found;
  }
  Result<Part> infix(std::span<const Operator> operators, Method operand) {
    OFP_ASSIGN(Part left, (this->*operand)());
    while (const Operator* const found = operator_of(operators)) {
      OFP_TRY(advance());
      OFP_ASSIGN(Part right, (this->*operand)());
      OFP_ASSIGN(left, call(found->function, std::move(left), std::move(right)));
    }
    return left;
  }

  Result<Part> disjunction() { return infix(or_words, &Parser::conjunction); }
  Result<Part> conjunction() { return infix(and_words, &Parser::negation); }
  Result<Part> negation() {
    if (!is("not")) return comparison();
    OFP_TRY(advance());
    OFP_ASSIGN(Part operand, deeper(&Parser::negation));
    return call(Function::logical_not, std::move(operand));
  }
  [[nodiscard]] bool is_compared() const { return operator_of(comparisons) != nullptr || is("in") || is("not"); }
  Result<Part> comparison() {
    OFP_ASSIGN(Part left, alternation());
    std::optional<Part> all;
    const auto join = [&](Part made) -> Status {
      if (all) {
        OFP_ASSIGN(made, call(Function::logical_and, std::move(*all), std::move(made)));
      }
      all = std::move(made);
      return {};
    };
    while (const Operator* const found = operator_of(comparisons)) {
      OFP_TRY(advance());
      OFP_ASSIGN(Part right, alternation());
      if (is_compared()) {  // it is a part of the next comparison, too
        OFP_TRY(charge(right.nodes));
        OFP_TRY(charge_bytes(right.bytes));
      }
      OFP_ASSIGN(Part made, call(found->function, std::move(left), right));
      OFP_TRY(join(std::move(made)));
      left = std::move(right);
    }
    if (is_compared()) {
      OFP_ASSIGN(Part made, membership(std::move(left)));
      OFP_TRY(join(std::move(made)));
    }
    return all ? std::move(*all) : std::move(left);
  }
  Result<Part> membership(Part needle) {
    const bool is_negated = is("not");
    if (is_negated) OFP_TRY(advance());
    OFP_TRY(expect("in", "\"in\""));
    const std::size_t at = place();
    OFP_ASSIGN(std::vector<Literal> values, values_in_brackets());
    if (!unify(values)) return fail(Error::invalid, "character {}: the values after \"in\" have different types", at);
    Part made{wire::call(Function::is_in, {})};
    add(made, std::move(needle));
    for (Literal& each : values) {
      OFP_ASSIGN(Part value, leaf(std::move(each)));
      add(made, std::move(value));
    }
    OFP_ASSIGN(made, counted(std::move(made)));
    if (!is_negated) return made;
    return call(Function::logical_not, std::move(made));
  }
  Result<std::vector<Literal>> values_in_brackets() {
    if (!is("(") && !is("[")) return unexpected("a list of values, as in (1, 2),");
    const std::string_view closing = is("(") ? ")" : "]";
    OFP_TRY(advance());
    std::vector<Literal> values;
    while (!is(closing)) {
      if (values.size() == values_max)
        return fail(Error::too_large, "character {}: at most {} values are allowed after \"in\"", place(), values_max);
      OFP_ASSIGN(Literal made, value());
      values.push_back(std::move(made));
      if (!is(",")) break;
      OFP_TRY(advance());
    }
    OFP_TRY(expect(closing, closing == ")" ? "\",\" or \")\"" : "\",\" or \"]\""));
    return values;
  }
  // One of the values after `in`.
  Result<Literal> value() {
    const bool is_negative = is("-");
    const std::size_t at = token_.at;
    if (is_negative) {
      OFP_TRY(advance());
      if (token_.kind != Token::Kind::number) return unexpected("a number");
    }
    if (!is_literal()) return unexpected("a value");
    OFP_ASSIGN(Literal made, literal());
    if (is_negative) {
      OFP_ASSIGN(made, negated(made, at));
    }
    OFP_TRY(advance());
    return made;
  }

  Result<Part> alternation() { return infix(or_signs, &Parser::intersection); }
  Result<Part> intersection() { return infix(and_signs, &Parser::sum); }
  Result<Part> sum() { return infix(sums, &Parser::product); }
  Result<Part> product() { return infix(products, &Parser::signed_operand); }
  Result<Part> signed_operand() {
    const bool is_minus = is("-");
    if (!is_minus && !is("~")) return primary();
    const std::size_t at = token_.at;
    OFP_TRY(advance());
    OFP_ASSIGN(Part operand, deeper(&Parser::signed_operand));
    if (!is_minus) return call(Function::logical_not, std::move(operand));
    if (!operand.is_number) return call(Function::negate, std::move(operand));
    OFP_ASSIGN(operand.expression.literal, negated(operand.expression.literal, at));
    operand.is_number = false;
    return operand;
  }
  Result<Part> primary() {
    if (is_literal()) {
      OFP_ASSIGN(Literal value, literal());
      const bool is_number = token_.kind == Token::Kind::number;
      OFP_TRY(advance());
      OFP_ASSIGN(Part made, leaf(std::move(value)));
      made.is_number = is_number;
      return made;
    }
    if (is("(")) {
      OFP_TRY(advance());
      OFP_ASSIGN(Part made, deeper(&Parser::disjunction));
      OFP_TRY(expect(")", "an operator or \")\""));
      return made;
    }
    if (token_.kind != Token::Kind::name || std::ranges::find(words, token_.text) != words.end())
      return unexpected("a column or a value");
    const Token name = token_;
    OFP_TRY(advance());
    if (!is("(")) return leaf(wire::field(std::string(name.text)));
    OFP_TRY(advance());
    return name.text == "column" ? column() : function(name);
  }
  // After `column(`.
  Result<Part> column() {
    if (token_.kind != Token::Kind::text) return unexpected("a name in quotes");
    OFP_ASSIGN(std::string name, unquoted());
    OFP_TRY(advance());
    OFP_TRY(expect(")", "\")\""));
    return leaf(wire::field(std::move(name)));
  }
  // After a name and a bracket.
  Result<Part> function(const Token& name) {
    const auto* const found = std::ranges::find(functions, name.text, &NamedFunction::name);
    if (found == functions.end())
      return fail(Error::invalid, "character {}: there is no function {}; there are {}", lexer_.place(name.at),
                  printable(name.text.substr(0, shown_bytes_max)), function_names);
    Part made{wire::call(found->function, {})};
    while (!is(")")) {
      OFP_ASSIGN(Part argument, deeper(&Parser::disjunction));
      add(made, std::move(argument));
      if (!is(",")) break;
      OFP_TRY(advance());
    }
    OFP_TRY(expect(")", "an operator, \",\" or \")\""));
    if (const std::size_t given = made.expression.arguments.size(); given != found->arguments)
      return fail(Error::invalid, "character {}: {} is called with {} arguments, it takes {}", lexer_.place(name.at),
                  found->name, given, found->arguments);
    return counted(std::move(made));
  }

  [[nodiscard]] bool is_literal() const {
    switch (token_.kind) {
      case Token::Kind::number:
      case Token::Kind::text:
      case Token::Kind::bytes:
        return true;
      default:
        return is("True") || is("False") || is("None");
    }
  }
  // The value at which the parser stands.
  [[nodiscard]] Result<Literal> literal() const {
    if (token_.kind == Token::Kind::number) return number();
    if (token_.kind == Token::Kind::name) {
      if (is("None")) return Literal{};
      return Literal{ValueType::boolean, is("True")};
    }
    OFP_ASSIGN(std::string text, unquoted());
    return Literal{token_.kind == Token::Kind::text ? ValueType::text : ValueType::binary, std::move(text)};
  }
  [[nodiscard]] Result<Literal> number() const {
    const std::string_view text = token_.text;
    const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
    if (!is_hex && text.find_first_of(".eE") != std::string_view::npos) {
      if (const auto value = number_of<double>(text)) return Literal{ValueType::float64, *value};
      return no_number();
    }
    const std::string_view digits = is_hex ? text.substr(2) : text;
    if (!is_hex && digits.size() > 1 && digits.starts_with('0')) return no_number();  // octal in C
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), end, value, is_hex ? 16 : 10);
    if (error != std::errc() || rest != end) return no_number();
    return whole(value);
  }
  // `at`: of the minus.
  [[nodiscard]] Result<Literal> negated(const Literal& number, std::size_t at) const {
    if (const auto made = negative(number)) return *made;
    return fail(Error::invalid, "character {}: a number below {} does not fit 64 bits", lexer_.place(at),
                std::numeric_limits<std::int64_t>::min());
  }
  [[nodiscard]] tl::unexpected<Failure> no_number() const {
    return fail(Error::invalid, "character {}: {} is not a number of 64 bits", place(),
                printable(token_.text.substr(0, shown_bytes_max)));
  }

  // The text in quotes at which the parser stands.
  [[nodiscard]] Result<std::string> unquoted() const {
    const bool is_bytes = token_.kind == Token::Kind::bytes;
    std::string_view rest = token_.text.substr(is_bytes ? 2 : 1);
    rest.remove_suffix(1);
    std::string made;
    while (!rest.empty()) {
      const char c = rest.front();
      rest.remove_prefix(1);
      if (c != '\\') {
        made += c;
        continue;
      }
      const char escape = rest.front();  // the lexer has seen to it that there is one
      rest.remove_prefix(1);
      constexpr std::string_view written = "\\'\"nrt", meant = "\\'\"\n\r\t";
      if (const std::size_t which = written.find(escape); which != std::string_view::npos) {
        made += meant[which];
        continue;
      }
      unsigned code = 0;
      const std::string_view digits = rest.substr(0, std::min<std::size_t>(rest.size(), 2));
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      if (escape != 'x' || digits.size() < 2 || error != std::errc() || end != digits.data() + 2)
        return fail(Error::invalid, "character {}: a text may have the escapes \\\\ \\' \\\" \\n \\r \\t and \\xHH",
                    place());
      rest.remove_prefix(2);
      if (is_bytes || code < 0x80) {
        made += static_cast<char>(code);
      } else {  // U+0080 to U+00FF in UTF-8
        made += static_cast<char>(0xC0 | code >> 6);
        made += static_cast<char>(0x80 | (code & 0x3F));
      }
    }
    return made;
  }

  Lexer lexer_;
  std::uint32_t& nodes_left_;
  std::uint64_t bytes_left_ = wire::query_bytes_max;
  Token token_{};
  std::uint32_t levels_ = 0;
};

}  // namespace

bool is_column_name(std::string_view text) noexcept {
  return !text.empty() && begins_name(text.front()) && std::ranges::all_of(text, is_in_name);
}

Result<wire::Expression> parse_expression(std::string_view text, std::uint32_t& nodes_left) {
  return Parser(text, nodes_left).parse();
}

}  // namespace offpath::host
