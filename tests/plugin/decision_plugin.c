/* Functions that decide, for tests/e2e/test_decisions.py. */
#include <offpath/decision.h>
#include <offpath/plugin.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const ofp_decision_view* view_of(const ofp_context* context) { return context->inputs[0]->data; }

/* Its record is the number of the interval and that of members that were present, and how many actuators it sees. */
static int32_t tell(ofp_context* context) {
  const ofp_decision_view* view = view_of(context);
  uint64_t* record = context->output(context, "record", 3 * sizeof *record, 0);
  if (record == NULL) return 1;
  record[0] = view->interval;
  record[1] = view->present;
  record[2] = context->inputs[3]->bytes / view->actuator_bytes;
  return 0;
}

/* The same, after half a second. */
static int32_t tell_late(ofp_context* context) {
  const struct timespec second = {1, 0};
  nanosleep(&second, NULL);
  return tell(context);
}

/* Sets each actuator to what the arguments say, for as long as is allowed. */
static ofp_actuator_setting* set_all(ofp_context* context, uint64_t* count) {
  char text[32] = {0};
  memcpy(text, context->arguments, context->arguments_bytes < sizeof text ? context->arguments_bytes : sizeof text - 1);
  const ofp_input* actuators = context->inputs[3];
  const uint64_t row_bytes = view_of(context)->actuator_bytes;
  *count = actuators->bytes / row_bytes;
  ofp_actuator_setting* settings = context->output(context, "settings", *count * sizeof *settings, 0);
  for (uint64_t i = 0; settings != NULL && i < *count; ++i) {
    const void* row = (const char*)actuators->data + i * row_bytes;
    const ofp_actuator_state* actuator = row;
    memcpy(settings[i].name, actuator->name, sizeof settings[i].name);
    settings[i].value = strtoull(text, NULL, 10);
  }
  return settings;
}

static int32_t set(ofp_context* context) {
  uint64_t count = 0;
  return set_all(context, &count) == NULL ? 1 : tell(context);
}

/* Crashes after its settings were made. */
static int32_t crash(ofp_context* context) {
  uint64_t count = 0;
  set_all(context, &count);
  abort();
}

/* Sets one that the exchange may not set in place of the last one, behind those that it may. */
static int32_t overreach(ofp_context* context) {
  uint64_t count = 0;
  ofp_actuator_setting* settings = set_all(context, &count);
  if (settings == NULL || count < 2) return 1;
  strcpy(settings[count - 1].name, "other");
  settings[count - 1].value = 60000000;
  return 0;
}

static const ofp_function functions[] = {{"tell", tell, NULL},
                                         {"tell_late", tell_late, NULL},
                                         {"crash", crash, NULL},
                                         {"set", set, NULL},
                                         {"overreach", overreach, NULL}};
static const ofp_plugin plugin = {OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "decision", 5, functions};

OFP_PLUGIN_EXPORT const ofp_plugin* offpath_plugin(void) { return &plugin; }
