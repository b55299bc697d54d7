#include "wire/messages/task_messages.h"

#include "base/status.h"
#include "wire/limits.h"
#include "wire/messages/message_fields.h"

namespace offpath::wire {
namespace {

void fields(auto& way, Is<TaskOpen> auto& m) {
  way.begins("opening of a session of tasks");
  way(m.lane, m.lanes);
  object_at(way, m.lines);
  way.each(m.plugins, [&way](auto& plugin) {
    way.text(plugin.name, name_bytes_max, "a plug-in's name");
    way.text(plugin.path, task_path_bytes_max, "a plug-in's path");
  });
  way.text(m.team, name_bytes_max, "the team's name");
}
Status check(const TaskOpen& m) {
  if (m.lanes > task_lanes_max || (m.lane != task_any_lane && m.lane >= m.lanes))
    return fail(Error::invalid, "tasks: lane {} of {}", m.lane, m.lanes);
  if (!m.team.empty() && (m.lane == task_any_lane || m.lanes == 0))
    return fail(Error::invalid, "tasks: team \"{}\" without a lane: set lane and lanes", brief(m.team));
  if (m.plugins.size() > task_plugins_max)
    return fail(Error::too_large, "tasks: {} plug-ins, at most {}", m.plugins.size(), task_plugins_max);
  for (const TaskPlugin& plugin : m.plugins)
    if (plugin.name.empty() || !plugin.path.starts_with('/'))
      return fail(Error::invalid, "tasks: plug-in \"{}\" at \"{}\": a name and an absolute path", plugin.name,
                  plugin.path);
  if (!is_segment(m.lines.region) || m.lines.length == 0 || m.lines.length % task_line_bytes != 0 ||
      m.lines.length / task_line_bytes > task_lines_max || m.lines.offset % task_line_bytes != 0)
    return fail(Error::protocol, "tasks: lines of {} bytes from {} on, in region {:#x}", m.lines.length, m.lines.offset,
                m.lines.region);
  return {};
}

void fields(auto& way, Is<TaskRun> auto& m) {
  way.begins("task");
  way(m.session, m.line, m.wait_ns);
  way.text(m.plugin, name_bytes_max, "the plug-in's name");
  way.text(m.function, name_bytes_max, "the function's name");
  way.each(m.after, [&way](auto& ticket) { way(ticket); });
  way.each(m.inputs, [&way](auto& input) {
    object_at(way, input.source);
    way(input.bytes, input.version, input.changed_from, input.changed_at, input.changed_bytes);
    way.text(input.name, name_bytes_max, "an input's name");
  });
  way.each(m.outputs, [&way](auto& output) {
    object_at(way, output.target);
    way(output.bytes, output.version);
    way.text(output.name, name_bytes_max, "an output's name");
  });
  way.bytes(m.arguments);
}
// Of inputs in pieces. Returns how many inputs there are.
Result<std::size_t> check_pieces(const std::vector<TaskInput>& inputs) {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TaskInput& input = inputs[i];
    if (i == 0 || input.name != inputs[i - 1].name) {
      ++count;
      bytes = input.bytes;
      continue;
    }
    if (input.version != inputs[i - 1].version || input.changed_from != 0 || inputs[i - 1].changed_from != 0)
      return fail(Error::invalid, "input \"{}\" is in pieces: all need the same version, and no changed part",
                  input.name);
    if (!checked_add(bytes, input.bytes, bytes) || bytes > region_bytes_max)
      return fail(Error::too_large, "input \"{}\" has more than {} bytes", input.name, region_bytes_max);
  }
  return count;
}

Status check(const TaskRun& m) {
  OFP_ASSIGN(const std::size_t inputs, check_pieces(m.inputs));
  if (inputs > task_inputs_max || m.outputs.size() > task_outputs_max || m.after.size() > task_after_max)
    return fail(Error::too_large,
                "a task with {} inputs and {} outputs, after {} others: at most {}, {} and {} are allowed", inputs,
                m.outputs.size(), m.after.size(), task_inputs_max, task_outputs_max, task_after_max);
  if (m.inputs.size() > task_pieces_max)
    return fail(Error::too_large, "a task with inputs in {} pieces, at most {}", m.inputs.size(), task_pieces_max);
  for (const TaskInput& input : m.inputs) {
    std::uint64_t end = 0;
    if (input.source.length != 0 && input.source.length != input.bytes)
      return fail(Error::protocol, "input \"{}\" has {} bytes, but its memory has {}", input.name, input.bytes,
                  input.source.length);
    if (input.bytes > region_bytes_max || !checked_add(input.changed_at, input.changed_bytes, end) || end > input.bytes)
      return fail(Error::invalid, "input \"{}\": {} changed bytes from {} on are beyond its {}", input.name,
                  input.changed_bytes, input.changed_at, input.bytes);
    if (input.version == 0 && input.changed_from != 0)
      return fail(Error::invalid, "input \"{}\" has changed, and has no version", input.name);
    if (input.source.length == 0 && input.bytes != 0 && input.version == 0)
      return fail(Error::invalid, "input \"{}\" has neither memory nor a version", input.name);
  }
  for (const TaskOutput& output : m.outputs) {
    if (output.target.length != 0 && (output.target.length != output.bytes || !is_segment(output.target.region)))
      return fail(Error::denied, "output \"{}\" of {} bytes goes to {} bytes of region {:#x}", output.name,
                  output.bytes, output.target.length, output.target.region);
    if (output.bytes > region_bytes_max)
      return fail(Error::too_large, "output \"{}\" of {} bytes", output.name, output.bytes);
  }
  return {};
}

void fields(auto& way, Is<TaskWait> auto& m) {
  way.begins("wait for a task");
  way(m.ticket);
}

void fields(auto& way, Is<TaskCancel> auto& m) {
  way.begins("end of a task");
  way(m.ticket);
}

void fields(auto& way, Is<TaskClose> auto& m) {
  way.begins("end of a session of tasks");
  way(m.session);
}

void fields(auto& way, Is<TaskDone> auto& m) {
  way.begins("outcome of a task");
  way(m.worker, m.pulled_ns, m.queued_ns, m.ran_ns, m.pushed_ns, m.pulled_bytes);
  way.each(m.output_bytes, [&way](auto& bytes) { way(bytes); });
}

}  // namespace

OFFPATH_TASK_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
