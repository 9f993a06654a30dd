"""The face of `mirrorlake.config.client`: what other rooms use of it; its modules are its own."""

from mirrorlake.config.client.jaas import JaasError as JaasError
from mirrorlake.config.client.jaas import parse as parse
from mirrorlake.config.client.msk import TOKEN as TOKEN
from mirrorlake.config.client.msk import read_token_spec as read_token_spec
from mirrorlake.config.client.options import ClientOptions as ClientOptions
from mirrorlake.config.client.options import OptionError as OptionError
from mirrorlake.config.client.options import Role as Role
from mirrorlake.config.client.options import resolve as resolve
from mirrorlake.config.client.options import translate as translate
