"""Translate client options of either spelling for librdkafka and for Java."""

from mirrorlake.config.client.msk import TOKEN, read_token_spec
from mirrorlake.config.client.options import ClientOptions, OptionError, Role, resolve, translate
