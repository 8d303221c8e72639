/* SPDX-License-Identifier: Apache-2.0 */
/* From wire messages to JSON; the one place that decides what the fields are called. */
#ifndef MC_CTL_JSON_H
#define MC_CTL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <json-c/json.h>
#include "moecomm.pb-c.h"

/* An answer with its "schema"; ended by mc_json_print. Aborts the program when out of memory. */
struct json_object *mc_json_new(void);
/* Writes it to stdout with a newline and frees it. */
void mc_json_print(struct json_object *answer);

/* Parts; each belongs to what it is added to. */
struct json_object *mc_json_object(void);
struct json_object *mc_json_list(void);
void mc_json_append(struct json_object *list, struct json_object *value);

/* Adds a field. value or text NULL: null. */
void mc_json_add(struct json_object *object, const char *key, struct json_object *value);
void mc_json_text(struct json_object *object, const char *key, const char *text);
void mc_json_number(struct json_object *object, const char *key, uint64_t number);
void mc_json_flag(struct json_object *object, const char *key, bool flag);

struct json_object *mc_json_daemon(const Moecomm__Wire__Status *status);
struct json_object *mc_json_groups(const Moecomm__Wire__Status *status);
struct json_object *mc_json_clients(const Moecomm__Wire__Status *status);
struct json_object *mc_json_gpus(const Moecomm__Wire__Status *status);

#endif
