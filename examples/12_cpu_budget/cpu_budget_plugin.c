/* A processor budget over the nodes of a group, decided on their agents, which call `share` with every view of the
 * exchange: it says what its node demands, the leader divides the budget, and each sets its node's cgroup to what it
 * has. The shares are grants, which end by themselves, and each setting ends `early` before its grant: whichever agent
 * dies, the sum is not above the budget while keepers are less than that late.
 *
 * Amounts are thousandths of a core. Beside its share every node always has the limit that its cgroup had before, which
 * the arguments name as the floor; the budget is all floors and exchange.grant_total. A second number of the arguments
 * is `early` in milliseconds, for machines on which processes wait longer for a core than 20 ms. A node's demand is the
 * gauge `wanted` of the gauges `demand`, as a whole. */
#include <offpath/decision.h>
#include <offpath/plugin.h>
#include <stdlib.h>
#include <string.h>

struct settings {
  uint64_t floor;
  int64_t early_ns;
};

static const ofp_input* input_of(const ofp_context* context, const char* name) {
  for (uint64_t i = 0; i < context->input_count; ++i) {
    const ofp_input* input = context->inputs[i];
    if (input->column_bytes == strlen(name) && memcmp(input->column, name, input->column_bytes) == 0) return input;
  }
  return NULL;
}

static struct settings settings_of(const ofp_context* context) {
  char text[64] = {0};
  char* rest;
  memcpy(text, context->arguments, context->arguments_bytes < sizeof text ? context->arguments_bytes : sizeof text - 1);
  struct settings settings;
  settings.floor = strtoull(text, &rest, 10);
  const long early_ms = *rest != '\0' ? strtol(rest, NULL, 10) : 20;
  settings.early_ns = (int64_t)early_ms * 1000 * 1000;
  return settings;
}

/* The demand beyond the floor. Rows may be longer than this file knows: the view has their size. */
static uint64_t wanted_here(const ofp_context* context, const ofp_decision_view* view, uint64_t floor) {
  const ofp_input* input = input_of(context, "gauges");
  uint64_t wanted = 0;
  for (uint64_t i = 0; input != NULL && i < input->bytes / view->gauge_bytes; ++i) {
    const void* row = (const char*)input->data + i * view->gauge_bytes;
    const ofp_gauge_value* gauge = row;
    double value = 0;
    if (strcmp(gauge->source, "demand") != 0 || strcmp(gauge->field, "wanted") != 0 || !gauge->is_present) continue;
    memcpy(&value, &gauge->bits, sizeof value);
    if (value > (double)floor && value < 1e9) wanted += (uint64_t)value - floor;
  }
  return wanted;
}

/* To each what it wants, if there is as much; otherwise in proportion. A node that is missing gets nothing new. */
static int divide(ofp_context* context, const ofp_decision_view* view) {
  const char* base = (const char*)view;
  ofp_grant_target* targets = context->output(context, "grants", view->entry_count * sizeof *targets, 0);
  if (targets == NULL) return 0;
  double all = 0;
  for (uint64_t i = 0; i < view->entry_count; ++i) {
    const void* row = base + view->entries_at + i * view->entry_bytes;
    const ofp_decision_entry* entry = row;
    uint64_t wanted = 0;
    const int counts = (entry->flags & OFP_ENTRY_PRESENT) && entry->record_bytes >= sizeof wanted;
    if (counts) memcpy(&wanted, base + entry->record_at, sizeof wanted);
    targets[i].member = entry->member;
    targets[i].amount = wanted;
    all += (double)wanted;
  }
  for (uint64_t i = 0; all > (double)view->grant_total && i < view->entry_count; ++i)
    targets[i].amount = (uint64_t)((double)targets[i].amount * ((double)view->grant_total / all));
  return 1;
}

static int32_t share(ofp_context* context) {
  const ofp_input* input = input_of(context, "view");
  if (input == NULL || input->bytes < sizeof(ofp_decision_view)) return 1;
  const ofp_decision_view* view = input->data;
  const struct settings settings = settings_of(context);
  uint64_t* record = context->output(context, "record", sizeof *record, 0);
  if (record == NULL || !divide(context, view)) return 1;
  *record = wanted_here(context, view, settings.floor);
  if (view->granted == 0) return 0;
  ofp_actuator_setting* setting = context->output(context, "settings", sizeof *setting, 0);
  if (setting == NULL) return 1;
  strcpy(setting->name, "cpu");
  setting->value = settings.floor + view->granted;
  setting->until_ns = view->granted_until_ns - settings.early_ns;
  setting->flags = OFP_SETTING_GRANTED;
  return 0;
}

static const ofp_function functions[] = {
    {"share", share, "Divides processor time by grants. Arguments: FLOOR [EARLY_MS]."}};
static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "cpu_budget", 1, functions};

OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &plugin; }
