#include "agent/config/exchange_settings.h"

#include <pwd.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "plugin/message.h"

namespace offpath::agent {

namespace {

Result<exchange::Field> parse_field(const std::string& text) {
  const std::size_t first = text.find(':'), second = first == std::string::npos ? first : text.find(':', first + 1);
  if (first == std::string::npos) return fail(Error::invalid, "'{}' is not NAME:TYPE or NAME:TYPE:UNIT", text);
  exchange::Field field;
  field.name = text.substr(0, first);
  const std::string type = text.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  if (type == "u64")
    field.type = exchange::FieldType::u64;
  else if (type == "i64")
    field.type = exchange::FieldType::i64;
  else if (type == "f64")
    field.type = exchange::FieldType::f64;
  else
    return fail(Error::invalid, "'{}': '{}' is not u64, i64 or f64", text, type);
  if (second != std::string::npos) field.unit = text.substr(second + 1);
  return field;
}

Status parse_records(const Config& one, exchange::ExchangeOptions& options) {
  options.record_bytes = one.bytes("exchange.record_max");
  options.entries = one.boolean("exchange.records");
  if (!one.texts("exchange.fields").empty()) {
    auto schema = std::make_shared<exchange::Schema>();
    schema->name = options.name;
    for (const std::string& text : one.texts("exchange.fields")) {
      auto field = parse_field(text);
      if (!field) return bad_value(one, "exchange.fields", "{}", field.error().message);
      schema->fields.push_back(std::move(*field));
    }
    if (const Status checked = exchange::check(*schema); !checked)
      return bad_value(one, "exchange.fields", "{}", checked.error().message);
    options.schema = std::move(schema);
  }
  for (const std::string& text : one.texts("exchange.reductions")) {
    if (!options.schema) return bad_value(one, "exchange.reductions", "reductions need exchange.fields");
    auto reduction = exchange::parse_reduction(text, *options.schema);
    if (!reduction) return bad_value(one, "exchange.reductions", "{}", reduction.error().message);
    options.reductions.push_back(std::move(*reduction));
  }
  return {};
}

Status parse_shape(const Config& one, exchange::ExchangeSettings& made) {
  const std::string& topology = one.text("exchange.topology");
  constexpr std::string_view file = "file:";
  if (topology.starts_with(file)) {
    made.shape.kind = exchange::Shape::Kind::file;
    made.tree_file = topology.substr(file.size());
    if (!made.tree_file.starts_with('/'))
      return bad_value(one, "exchange.topology", "'{}' is not an absolute path", made.tree_file);
    if (!one.texts("exchange.members").empty())
      return bad_value(one, "exchange.members", "leave it out: the tree's file gives the members");
  } else {
    auto shape = exchange::parse_shape(topology);
    if (!shape) return bad_value(one, "exchange.topology", "{}, or file:/PATH", shape.error().message);
    made.shape = std::move(*shape);
  }
  const std::string& order = one.text("exchange.order");
  if (order != "contiguous" && order != "locality")
    return bad_value(one, "exchange.order", "'{}' is neither contiguous nor locality", order);
  made.shape.order = order == "locality" ? exchange::Shape::Order::locality : exchange::Shape::Order::contiguous;
  made.members = one.texts("exchange.members");
  for (std::size_t i = 0; i < made.members.size(); ++i)
    if (std::ranges::count(made.members, made.members[i]) > 1)
      return bad_value(one, "exchange.members", "{} is named twice", made.members[i]);
  return {};
}

Status parse_grants(const Config& one, exchange::ExchangeSettings& made) {
  const std::int64_t total = one.integer("exchange.grant_total");
  if (total == 0) return {};
  if (made.members.empty() && made.tree_file.empty())
    return bad_value(one, "exchange.grant_total",
                     "grants need members given by name: exchange.members, or a tree's file");
  made.options.grants.emplace();
  made.options.grants->total = total < 0 ? exchange::GrantOptions::unlimited : static_cast<std::uint64_t>(total);
  made.options.grants->ttl_ns = one.duration_ns("exchange.grant_ttl");
  made.options.grants->lease_ns = one.duration_ns("exchange.grant_lease");
  if (made.options.grants->lease_ns < 2 * made.options.interval_ns)
    return bad_value(one, "exchange.grant_lease", "less than two intervals: it would expire before it is renewed");
  return {};
}

Status parse_user(const Config& one, exchange::ExchangeSettings& made) {
  const std::string& user = one.text("exchange.user");
  if (user.empty()) return {};
  made.user = number_of<uid_t>(user);
  if (made.user) return {};
  const passwd* entry = getpwnam(user.c_str());
  if (entry == nullptr) return bad_value(one, "exchange.user", "there is no user '{}'", user);
  made.user = entry->pw_uid;
  return {};
}

Result<exchange::DecisionSettings> parse_decision(const Config& one, const std::string& decide,
                                                  const std::vector<plugin::PluginOptions>& plugins,
                                                  const ActuatorSettings& actuators) {
  const std::size_t slash = std::min(decide.find('/'), decide.size());
  exchange::DecisionSettings made;
  made.plugin = decide.substr(0, slash);
  made.function = decide.substr(std::min(slash + 1, decide.size()));
  made.arguments = one.text("exchange.arguments");
  if (!plugin::is_function_name(made.function))
    return bad_value(one, "exchange.decide", "'{}' is not PLUGIN/FUNCTION", decide);
  if (std::ranges::find(plugins, made.plugin, &plugin::PluginOptions::name) == plugins.end())
    return bad_value(one, "exchange.decide", "there is no [[plugin]] with the name '{}'", made.plugin);
  for (const std::string& name : one.texts("exchange.actuators")) {
    const auto at = std::ranges::find(actuators.list, name, &actuator::ActuatorOptions::name);
    if (at == actuators.list.end())
      return bad_value(one, "exchange.actuators", "there is no [[actuator]] with the name '{}'", name);
    if (std::ranges::find(made.actuators, name, &exchange::DecisionActuator::name) != made.actuators.end())
      return bad_value(one, "exchange.actuators", "{} is named twice", name);
    made.actuators.push_back(
        {static_cast<std::uint32_t>(at - actuators.list.begin()), name, at->min, at->max, at->lease_ns});
  }
  return made;
}

}  // namespace

Status read_decisions(const Config& config, const std::vector<plugin::PluginOptions>& plugins,
                      const ActuatorSettings& actuators, std::vector<exchange::ExchangeSettings>& exchanges) {
  std::set<std::string> taken;
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const Config& one = config.list("exchange")[i];
    const std::string& decide = one.text("exchange.decide");
    if (decide.empty()) {
      if (!one.texts("exchange.actuators").empty())
        return bad_value(one, "exchange.actuators", "only a function sets them: exchange.decide is not set");
      continue;
    }
    if (!exchanges[i].source.empty())
      return bad_value(one, "exchange.decide", "exchange.source is set as well: the records would come from both");
    OFP_ASSIGN(exchanges[i].decides, parse_decision(one, decide, plugins, actuators));
    for (const exchange::DecisionActuator& each : exchanges[i].decides->actuators)
      if (!taken.insert(each.name).second)
        return bad_value(one, "exchange.actuators", "another exchange sets {}", each.name);
  }
  return {};
}

Result<std::vector<exchange::ExchangeSettings>> parse_exchanges(const Config& config) {
  std::vector<exchange::ExchangeSettings> exchanges;
  for (const Config& one : config.list("exchange")) {
    exchange::ExchangeSettings made;
    made.options.name = one.text("exchange.name");
    if (made.options.name.empty()) return bad_value(one, "exchange.name", "it is required");
    for (const auto& each : exchanges)
      if (each.options.name == made.options.name)
        return bad_value(one, "exchange.name", "there are two exchanges with the name '{}'", made.options.name);
    made.options.interval_ns = one.duration_ns("exchange.interval");
    made.options.deadline_ns = one.duration_ns("exchange.deadline");
    const std::string& views = one.text("exchange.views");
    if (views != "all" && views != "leaders")
      return bad_value(one, "exchange.views", "'{}' is neither all nor leaders", views);
    made.options.views_to_all = views == "all";
    made.source = one.text("exchange.source");
    if (!made.source.empty() && one.texts("exchange.fields").empty())
      return bad_value(one, "exchange.source", "exchange.fields is required: it selects the fields to send");
    OFP_TRY(parse_records(one, made.options));
    OFP_TRY(parse_shape(one, made));
    OFP_TRY(parse_grants(one, made));
    OFP_TRY(parse_user(one, made));
    if (const Status checked = exchange::check(made.options); !checked)
      return bad_value(one, "exchange.name", "{}", checked.error().message);
    exchanges.push_back(std::move(made));
  }
  return exchanges;
}

}  // namespace offpath::agent
