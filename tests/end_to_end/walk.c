/* A command in C: it shrinks a value by pseudo-random factors, reports it, and goes on from its checkpoint. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static volatile sig_atomic_t asked_to_leave = 0;

static void leave(int number) { (void)number; asked_to_leave = 1; }

static const char *variable(const char *name) {
    const char *value = getenv(name);
    if (value == NULL) {
        fprintf(stderr, "%s is not set\n", name);
        exit(2);
    }
    return value;
}

static void rest(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* Return the next number in [0, 1) of a stream that depends on the seed and the step alone (splitmix64). */
static double chance(uint64_t seed, uint64_t step) {
    uint64_t z = seed * 0x9e3779b97f4a7c15u + step * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* Wait for the answer to the report of a step; return 1 if it says to go on. */
static int answer(long step) {
    for (;;) {
        char line[64], word[16];
        long answered = -1;
        FILE *file = fopen(variable("SWEEP_ANSWERS"), "r");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            if (strchr(line, '\n') != NULL && sscanf(line, "%15s %ld", word, &answered) == 2 && answered == step) {
                fclose(file);
                return strcmp(word, "continue") == 0;
            }
        }
        if (file != NULL) fclose(file);
        rest(0.002);
    }
}

int main(int count, char **words) {
    if (count != 2) return 2;
    signal(SIGTERM, leave);
    double rate = atof(words[1]), pause = atof(variable("SWEEP_PARAM_PAUSE")), value = 1.0;
    uint64_t seed = strtoull(variable("SWEEP_SEED"), NULL, 10);
    long steps = atol(variable("SWEEP_STEPS")), start = atol(variable("SWEEP_STEP"));
    char path[4096];
    if (start > 0) {
        snprintf(path, sizeof path, "%s/value", variable("SWEEP_RESUME"));
        FILE *file = fopen(path, "r");
        if (file == NULL || fscanf(file, "%la", &value) != 1) return 3;
        fclose(file);
    }
    printf("starts at %ld\n", start);
    for (long step = start + 1; step <= steps; step++) {
        value *= 1 - rate * chance(seed, (uint64_t)step);
        rest(pause);
        snprintf(path, sizeof path, "%s/next", variable("SWEEP_CHECKPOINT"));
        if (mkdir(path, 0700) != 0) return 4;
        strncat(path, "/value", sizeof path - strlen(path) - 1);
        FILE *file = fopen(path, "w");
        if (file == NULL) return 5;
        fprintf(file, "%a", value);
        fclose(file);
        file = fopen(variable("SWEEP_REPORTS"), "a");
        if (file == NULL) return 6;
        fprintf(file, "{\"step\": %ld, \"metrics\": {\"val/loss\": %.17g}, \"checkpoint\": \"next\"}\n", step, value);
        fclose(file);
        if (!answer(step) || asked_to_leave) return 0;
    }
    return 0;
}
