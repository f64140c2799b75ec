/* Says what a variable is, by every way in which a program may look: before main, by getenv, in main's third
 * argument, in environ, and in a child. Lines "way value", with "-" where it is not set. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIABLE "TF_FORCE_GPU_ALLOW_GROWTH"

static char early[64] = "-";

__attribute__((constructor)) static void before_main(void) {
    const char *value = getenv(VARIABLE);
    if (value) snprintf(early, sizeof early, "%s", value);
}

static void say(const char *way, char **environment) {
    const char *value = "-";
    for (; *environment; environment++)
        if (!strncmp(*environment, VARIABLE "=", sizeof VARIABLE)) value = *environment + sizeof VARIABLE;
    printf("%s %s\n", way, value);
    fflush(stdout);
}

int main(int argc, char **argv, char **environment) {
    if (argc > 1) {
        say("child", environ);
        return 0;
    }
    const char *value = getenv(VARIABLE);
    printf("constructor %s\ngetenv %s\n", early, value ? value : "-");
    say("main", environment);
    say("environ", environ);
    pid_t child = fork();
    if (!child) {
        execv("/proc/self/exe", (char *[]){argv[0], "child", NULL});
        _exit(1);
    }
    int status;
    return waitpid(child, &status, 0) == child && !status ? 0 : 1;
}
